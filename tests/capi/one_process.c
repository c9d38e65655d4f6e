/* Writes and reads a directory through ascot.h in one process, and gets everything wrong that can be.
 * It is C and C++ at once. Usage: one_process DIRECTORY
 */
#include <ascot.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 5000u

static int failures = 0;

static void check(int holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "line %d: %s (%s)\n", line, what, ascot_error_text());
        if (++failures == 20)
            exit(1);
    }
}
#define CHECK(what) check((what) != 0, #what, __LINE__)

static void fill(unsigned char *value, uint64_t key, uint64_t epoch)
{
    int i;

    for (i = 0; i < 40; i++)
        value[i] = (unsigned char)(key * 7 + epoch + (uint64_t)i);
}

typedef struct {
    uint64_t records;
    uint64_t stop_at;
} counted;

static int count(void *context, uint64_t epoch, const void *key, size_t key_length, const void *value,
                 size_t value_length)
{
    counted *so_far = (counted *)context;
    unsigned char expected[40];
    uint64_t number;

    memcpy(&number, key, sizeof number);
    fill(expected, number, epoch);
    CHECK(key_length == 8 && value_length == 40 && memcmp(value, expected, 40) == 0);
    so_far->records++;
    return so_far->records == so_far->stop_at;
}

static void write_two_epochs(const char *path)
{
    ascot_writer *writer = NULL, *second = NULL;
    ascot_stats stats;
    unsigned char value[41];
    uint64_t epoch, key, records = 0;

    CHECK(ascot_writer_open(path, "scheme=records key=8 value=40 memory=32MiB", NULL, &writer) == ASCOT_OK);
    CHECK(ascot_writer_open(path, "append=yes", NULL, &second) == ASCOT_LOCKED && second == NULL);
    for (epoch = 0; epoch < 2; epoch++) {
        for (key = 0; key < RECORDS; key++) {
            fill(value, key, epoch);
            CHECK(ascot_append(writer, &key, sizeof key, value, 40) == ASCOT_OK);
        }
        CHECK(ascot_append(writer, &key, 7, value, 40) == ASCOT_INVALID);
        CHECK(strstr(ascot_error_text(), "7 bytes") != NULL);
        CHECK(ascot_append(writer, &key, 8, value, 41) == ASCOT_INVALID);
        CHECK(ascot_append(writer, NULL, 8, value, 40) == ASCOT_INVALID);
        CHECK(ascot_progress(writer) == ASCOT_OK);
        CHECK(ascot_end_epoch(writer, &records) == ASCOT_OK && records == RECORDS);
    }
    CHECK(ascot_writer_stats(writer, &stats) == ASCOT_OK);
    CHECK(stats.records == 2 * RECORDS && stats.memory_logs_peak <= stats.memory_logs);
    CHECK(stats.memory_routing + stats.memory_logs == (32u << 20));
    CHECK(ascot_writer_close(writer) == ASCOT_OK);
}

static void read_them(const char *path)
{
    ascot_reader *reader = NULL;
    ascot_values *values = NULL;
    unsigned char expected[40];
    const void *bytes = NULL;
    size_t length = 0;
    uint64_t key, epoch = 9, epochs = 0;
    counted all = {0, 0}, some = {0, 10};

    CHECK(ascot_reader_open(path, "memory=16MiB", &reader) == ASCOT_OK);
    CHECK(ascot_epochs(reader, &epochs) == ASCOT_OK && epochs == 2);
    for (key = 0; key < RECORDS; key += 97) {
        CHECK(ascot_get(reader, &key, sizeof key, &values) == ASCOT_OK && ascot_values_count(values) == 2);
        CHECK(ascot_values_at(values, 1, &epoch, &bytes, &length) == ASCOT_OK && epoch == 1 && length == 40);
        fill(expected, key, 1);
        CHECK(memcmp(bytes, expected, 40) == 0);
        CHECK(ascot_values_at(values, 2, NULL, NULL, NULL) == ASCOT_INVALID);
        ascot_values_free(values);
        CHECK(ascot_get_at(reader, &key, sizeof key, 0, &values) == ASCOT_OK && ascot_values_count(values) == 1);
        ascot_values_free(values);
    }
    key = RECORDS + 1;
    CHECK(ascot_get(reader, &key, sizeof key, &values) == ASCOT_OK && ascot_values_count(values) == 0);
    ascot_values_free(values);
    CHECK(ascot_iterate(reader, count, &all) == ASCOT_OK && all.records == 2 * RECORDS);
    CHECK(ascot_iterate(reader, count, &some) == ASCOT_STOPPED && some.records == 10);
    CHECK(ascot_iterate(reader, NULL, NULL) == ASCOT_INVALID);
    ascot_reader_close(reader);
}

int main(int argc, char **argv)
{
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    const char *path = argc > 1 ? argv[1] : "run.dir";

    CHECK(strcmp(ascot_version(), ASCOT_VERSION) == 0);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_MISSING && reader == NULL);
    CHECK(ascot_writer_open(path, "scheme=lossy", NULL, &writer) == ASCOT_INVALID);
    CHECK(strstr(ascot_error_text(), "records, pointers, ranks") != NULL);
    CHECK(ascot_writer_open(path, "memory=100KiB", NULL, &writer) != ASCOT_OK && writer == NULL);
    CHECK(ascot_writer_open(NULL, NULL, NULL, &writer) == ASCOT_INVALID);
    CHECK(ascot_writer_open(path, NULL, NULL, NULL) == ASCOT_INVALID);
    CHECK(ascot_append(NULL, NULL, 0, NULL, 0) == ASCOT_INVALID);
    CHECK(ascot_end_epoch(NULL, NULL) == ASCOT_INVALID && ascot_writer_close(NULL) == ASCOT_OK);
    ascot_writer_abandon(NULL);
    ascot_reader_close(NULL);
    ascot_values_free(NULL);
    CHECK(ascot_values_count(NULL) == 0);
    write_two_epochs(path);
    CHECK(ascot_writer_open(path, NULL, NULL, &writer) == ASCOT_EXISTS);
    CHECK(strcmp(ascot_code_name(ASCOT_EXISTS), "ASCOT_EXISTS") == 0);
    read_them(path);
    printf("%d failures\n", failures);
    return failures != 0;
}
