/* Reads a value that is longer than the memory of the reader, part by part, and tells the most memory the process had.
 * It is C and C++ at once. Usage: long_value DIRECTORY KEY
 */
#include <ascot.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART 100000u

static uint64_t sum(uint64_t before, const unsigned char *bytes, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        before = (before ^ bytes[i]) * 1099511628211u;
    return before;
}

typedef struct {
    uint64_t sum;
    uint64_t bytes;
    int wrong;
} parts;

static int take(void *context, uint64_t epoch, const void *key, size_t key_length, uint64_t value_length, uint64_t offset,
                const void *part, size_t part_length)
{
    parts *so_far = (parts *)context;

    (void)epoch, (void)key, (void)key_length;
    so_far->wrong |= offset != so_far->bytes || offset + part_length > value_length;
    so_far->sum = sum(so_far->sum, (const unsigned char *)part, part_length);
    so_far->bytes += part_length;
    return 0;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ascot_error_text());
    exit(1);
}

int main(int argc, char **argv)
{
    static unsigned char part[PART];
    ascot_reader *reader;
    ascot_values *values;
    const void *bytes;
    uint64_t offset = 0, whole = 14695981039346656037u, epoch = 9;
    size_t length = 0, count = 0;
    parts all = {14695981039346656037u, 0, 0};
    char line[200], above[64];
    FILE *status;

    if (argc != 3 || strlen(argv[2]) > 60 || ascot_reader_open(argv[1], "memory=4MiB", &reader) != ASCOT_OK)
        fail("open");
    sprintf(above, "%s!", argv[2]);
    if (ascot_reader_range_parts(reader, argv[2], strlen(argv[2]), above, strlen(above), take, &all) != ASCOT_OK || all.wrong)
        fail("range");
    if (ascot_get(reader, argv[2], strlen(argv[2]), &values) != ASCOT_MEMORY || !strstr(ascot_error_text(), "ascot_find"))
        fail("all of the value, where it does not fit");
    if (ascot_find(reader, argv[2], strlen(argv[2]), ASCOT_ALL_EPOCHS, &values) != ASCOT_OK)
        fail("find");
    if (ascot_values_count(values) != 1 || ascot_values_at(values, 0, &epoch, NULL, &length) != ASCOT_OK || epoch != 0)
        fail("its length");
    if (ascot_values_at(values, 0, NULL, &bytes, NULL) != ASCOT_MEMORY ||
        ascot_value_read(values, 1, 0, part, PART, &count) != ASCOT_INVALID ||
        ascot_value_read(values, 0, 0, NULL, PART, &count) != ASCOT_INVALID)
        fail("what cannot be");
    /* Values outlive their reader. */
    if (ascot_reader_close(reader) != ASCOT_OK)
        fail("close");
    do {
        if (ascot_value_read(values, 0, offset, part, PART, &count) != ASCOT_OK)
            fail("read");
        whole = sum(whole, part, count);
        offset += count;
    } while (count == PART);
    if (offset != length || offset != all.bytes || whole != all.sum)
        fail("parts");
    if (ascot_value_read(values, 0, length + 5, part, PART, &count) != ASCOT_OK || count != 0)
        fail("behind its end");
    ascot_values_free(values);
    printf("bytes %llu sum %llu\n", (unsigned long long)offset, (unsigned long long)whole);
    status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            printf("peak %ld\n", atol(line + 6) * 1024);
    return 0;
}
