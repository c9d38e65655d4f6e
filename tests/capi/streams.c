/* Writes records to a file and reads them again through streams of elements.
 * Usage: streams FILE COUNT WRITE_OPTIONS READ_OPTIONS
 * Prints the requests made to write and to read, and the elements found.
 *        streams FILE ELEMENT_BYTES READ_OPTIONS
 * Reads a file and prints the number of elements.
 */
#include <ascot.h>

#include <stdio.h>
#include <stdlib.h>

struct record {
    uint32_t number;
    unsigned char rest[8];
};

static int failed(void)
{
    fprintf(stderr, "%s\n", ascot_error_text());
    return 1;
}

static int count_elements(const char *path, size_t element_bytes, const char *options)
{
    static unsigned char element[1 << 20];
    ascot_stream_in in;
    unsigned count = 0;

    if (ascot_stream_open(path, options, element_bytes, &in) != ASCOT_OK)
        return failed();
    for (; !ascot_stream_end(&in); count++)
        if (ascot_stream_read_next(&in, element) != ASCOT_OK)
            return failed();
    if (ascot_stream_close_in(&in, NULL) != ASCOT_OK)
        return failed();
    printf("%u\n", count);
    return 0;
}

/* The checks of the library: pointers that left their block, and places that are NULL. */
static int misuses(const char *path)
{
    ascot_stream_out out;
    ascot_stream_in in;
    uint32_t number = 7;

    if (ascot_stream_create(path, "", sizeof number, NULL) != ASCOT_INVALID ||
        ascot_stream_create(NULL, "", sizeof number, &out) != ASCOT_INVALID ||
        ascot_stream_create(path, "", 0, &out) != ASCOT_INVALID ||
        ascot_stream_create(path, "", (1 << 20) + 1, &out) != ASCOT_INVALID)
        return 1;
    if (ascot_stream_create(path, "", sizeof number, &out) != ASCOT_OK ||
        ascot_stream_write(&out, &number) != ASCOT_OK || ascot_stream_write(&out, &number) != ASCOT_OK)
        return failed();
    out.next = out.end;
    out.next++;
    if (ascot_stream_next_out(&out, &number) != ASCOT_INVALID)
        return 1;
    out.next = out.end - 4;
    if (ascot_stream_close_out(&out, 0, NULL) != ASCOT_OK)
        return failed();
    if (ascot_stream_open(path, "", sizeof number, &in) != ASCOT_OK ||
        ascot_stream_read_next(&in, &number) != ASCOT_OK)
        return failed();
    in.next = in.end + 4;
    if (ascot_stream_next_in(&in, &number, NULL) != ASCOT_INVALID)
        return 1;
    in.next = in.end;
    return ascot_stream_close_in(&in, NULL) == ASCOT_OK ? 0 : failed();
}

int main(int argc, char **argv)
{
    ascot_stream_out out;
    ascot_stream_in in;
    struct record record = {0, "ascot"};
    uint64_t written, read;
    uint32_t count, number;

    if (argc == 2)
        return misuses(argv[1]);
    if (argc == 4)
        return count_elements(argv[1], (size_t)strtoull(argv[2], NULL, 10), argv[3]);
    if (argc != 5)
        return 2;
    count = (uint32_t)strtoul(argv[2], NULL, 10);
    if (ascot_stream_create(argv[1], argv[3], sizeof record, &out) != ASCOT_OK)
        return failed();
    for (number = 0; number < count; number++) {
        record.number = number * 2654435761u;
        if (ascot_stream_write(&out, &record) != ASCOT_OK)
            return failed();
    }
    if (ascot_stream_close_out(&out, 1, &written) != ASCOT_OK)
        return failed();

    if (ascot_stream_open(argv[1], argv[4], sizeof record, &in) != ASCOT_OK)
        return failed();
    for (number = 0; !ascot_stream_end(&in); number++) {
        if (ascot_stream_read_next(&in, &record) != ASCOT_OK)
            return failed();
        if (record.number != number * 2654435761u || memcmp(record.rest, "ascot", 6) != 0) {
            fprintf(stderr, "element %u is another\n", number);
            return 1;
        }
    }
    if (ascot_stream_read_next(&in, &record) != ASCOT_INVALID) {
        fprintf(stderr, "an element was read after the end\n");
        return 1;
    }
    if (ascot_stream_close_in(&in, &read) != ASCOT_OK)
        return failed();
    if (ascot_stream_read_next(&in, &record) != ASCOT_INVALID || ascot_stream_close_in(&in, NULL) != ASCOT_INVALID) {
        fprintf(stderr, "a closed stream was used\n");
        return 1;
    }
    printf("%llu %llu %u\n", (unsigned long long)written, (unsigned long long)read, number);
    return 0;
}
