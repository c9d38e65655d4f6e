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

/* Records longer than a batch between ranks, and than a block. */
static void write_long_ones(const char *path)
{
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    ascot_values *values = NULL;
    size_t lengths[3] = {16 * 1024 + 1, 100 * 1000, 3 * 1000 * 1000}, length = 0;
    unsigned char *value = (unsigned char *)malloc(lengths[2]);
    const void *bytes = NULL;
    int i;

    CHECK(value != NULL && ascot_writer_open(path, "memory=16MiB", NULL, &writer) == ASCOT_OK);
    for (i = 0; i < 3 && value; i++) {
        memset(value, 'a' + i, lengths[i]);
        CHECK(ascot_append(writer, &lengths[i], sizeof lengths[i], value, lengths[i]) == ASCOT_OK);
    }
    CHECK(ascot_writer_close(writer) == ASCOT_OK);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_OK);
    for (i = 0; i < 3 && value; i++) {
        memset(value, 'a' + i, lengths[i]);
        CHECK(ascot_get(reader, &lengths[i], sizeof lengths[i], &values) == ASCOT_OK);
        CHECK(ascot_values_at(values, 0, NULL, &bytes, &length) == ASCOT_OK);
        CHECK(length == lengths[i] && memcmp(bytes, value, length) == 0);
        CHECK(ascot_values_free(values) == ASCOT_OK);
    }
    CHECK(ascot_reader_close(reader) == ASCOT_OK);
    free(value);
}

/* More memory than there is: less is enough, or it is an error. */
static void allow_too_much(const char *path)
{
    static const char *const options[6] = {"scheme=records memory=64GiB",      "scheme=pointers memory=64GiB",
                                           "scheme=ranks memory=64GiB",        "scheme=ranks memory=1000000GiB",
                                           "scheme=records memory=1000000GiB", "scheme=ranks memory=9000000000GiB"};
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    char beside[4096];
    int i, code;

    for (i = 0; i < 6; i++) {
        snprintf(beside, sizeof beside, "%s.%d", path, i);
        code = ascot_writer_open(beside, options[i], NULL, &writer);
        CHECK(code == ASCOT_OK || code == ASCOT_MEMORY);
        if (code == ASCOT_OK) {
            CHECK(ascot_append(writer, "key", 3, "value", 5) == ASCOT_OK);
            CHECK(ascot_writer_close(writer) == ASCOT_OK);
            CHECK(ascot_reader_open(beside, strstr(options[i], "memory="), &reader) == ASCOT_OK);
            CHECK(ascot_reader_close(reader) == ASCOT_OK);
        }
    }
}

/* Runs that start again: each from the checkpoint it made before its epoch. */
static void start_again(const char *path)
{
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    ascot_values *values = NULL;
    uint64_t key = 1, epochs = 0, start;

    for (start = 0; start < 4; start++) {
        char options[64];

        /* The last one from before the others. */
        snprintf(options, sizeof options, "open=auto scheme=ranks rollback=%u", (unsigned)(start == 3 ? 1 : start));
        CHECK(ascot_writer_open(path, options, NULL, &writer) == ASCOT_OK);
        CHECK(ascot_writer_epochs(writer, &epochs) == ASCOT_OK && epochs == (start == 3 ? 1 : start));
        CHECK(ascot_append(writer, &key, 8, &start, 8) == ASCOT_OK);
        CHECK(ascot_end_epoch(writer, NULL) == ASCOT_OK);
        CHECK(ascot_writer_epochs(writer, &epochs) == ASCOT_OK && epochs == (start == 3 ? 2 : start + 1));
        CHECK(ascot_writer_close(writer) == ASCOT_OK);
    }
    CHECK(ascot_writer_epochs(writer, &epochs) == ASCOT_INVALID);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_OK);
    CHECK(ascot_get(reader, &key, 8, &values) == ASCOT_OK && ascot_values_count(values) == 2);
    for (start = 0; start < 2; start++) {
        const void *bytes = NULL;
        uint64_t wanted = start == 0 ? 0 : 3;

        CHECK(ascot_values_at(values, start, &epochs, &bytes, NULL) == ASCOT_OK && epochs == start);
        CHECK(bytes && memcmp(bytes, &wanted, 8) == 0);
    }
    ascot_values_free(values);
    ascot_reader_close(reader);
    CHECK(ascot_writer_open(path, "open=append rollback=3", NULL, &writer) == ASCOT_INVALID);
    CHECK(strstr(ascot_error_text(), "2 complete epochs") != NULL);
    CHECK(ascot_writer_open(path, "open=append scheme=records", NULL, &writer) == ASCOT_INVALID);
    CHECK(strstr(ascot_error_text(), "scheme records was given") != NULL);
    CHECK(ascot_writer_open(path, "rollback=1", NULL, &writer) == ASCOT_INVALID);
}

/* Handles that are closed, of another kind, or nothing at all. */
static void use_what_is_closed(const char *path)
{
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    ascot_values *values = NULL;
    ascot_stats stats;
    uint64_t key = 1, epochs = 0;

    CHECK(ascot_writer_open(path, "append=yes", NULL, &writer) == ASCOT_OK);
    CHECK(ascot_epochs((ascot_reader *)writer, &epochs) == ASCOT_INVALID);
    CHECK(ascot_writer_abandon(writer) == ASCOT_OK);
    CHECK(ascot_append(writer, &key, 8, &key, 8) == ASCOT_INVALID);
    CHECK(strstr(ascot_error_text(), "there is no such writer") != NULL);
    CHECK(ascot_progress(writer) == ASCOT_INVALID && ascot_end_epoch(writer, NULL) == ASCOT_INVALID);
    CHECK(ascot_writer_stats(writer, &stats) == ASCOT_INVALID);
    CHECK(ascot_writer_close(writer) == ASCOT_INVALID && ascot_writer_abandon(writer) == ASCOT_INVALID);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_OK);
    CHECK(ascot_get(reader, &key, 8, &values) == ASCOT_OK && ascot_values_count(values) == 2);
    CHECK(ascot_values_free(values) == ASCOT_OK && ascot_values_free(values) == ASCOT_INVALID);
    CHECK(ascot_values_count(values) == 0);
    CHECK(ascot_values_at(values, 0, NULL, NULL, NULL) == ASCOT_INVALID);
    CHECK(ascot_reader_close(reader) == ASCOT_OK && ascot_reader_close(reader) == ASCOT_INVALID);
    CHECK(ascot_get(reader, &key, 8, &values) == ASCOT_INVALID && values == NULL);
    CHECK(ascot_iterate((ascot_reader *)&stats, count, NULL) == ASCOT_INVALID);
}

typedef struct {
    uint64_t keys[4];
    uint64_t values;
    uint64_t last;
} wanted;

static int one_of_many(void *context, size_t number, uint64_t epoch, const void *value, size_t value_length)
{
    wanted *so_far = (wanted *)context;
    unsigned char expected[40];

    CHECK(number >= so_far->last && number < 4 && epoch == so_far->values % 2);
    so_far->last = number;
    fill(expected, so_far->keys[number], epoch);
    CHECK(value_length == 40 && memcmp(value, expected, 40) == 0);
    so_far->values++;
    return 0;
}

static int in_order(void *context, uint64_t epoch, const void *key, size_t key_length, const void *value,
                    size_t value_length)
{
    wanted *so_far = (wanted *)context;

    (void)epoch, (void)value, (void)value_length;
    CHECK(key_length == 8 && (so_far->values == 0 || memcmp(&so_far->last, key, 8) <= 0));
    memcpy(&so_far->last, key, 8);
    so_far->values++;
    return 0;
}

static void read_many(ascot_reader *reader)
{
    wanted many = {{17, 3, RECORDS + 9, 4999}, 0, 0}, all = {{0}, 0, 0}, some = {{0}, 0, 0};
    const void *keys[4];
    size_t lengths[4] = {8, 8, 8, 8};
    unsigned char from[8] = {1}, upto[8] = {3};
    uint64_t count_of = 1;
    const char *first = NULL;
    int i;

    for (i = 0; i < 4; i++)
        keys[i] = &many.keys[i];
    CHECK(ascot_reader_get_many(reader, keys, lengths, 4, one_of_many, &many) == ASCOT_OK && many.values == 6);
    CHECK(ascot_reader_get_many(reader, NULL, lengths, 4, one_of_many, &many) == ASCOT_INVALID);
    CHECK(ascot_reader_get_many(reader, NULL, NULL, 0, one_of_many, &many) == ASCOT_OK);
    CHECK(ascot_reader_get_many(reader, keys, lengths, 4, NULL, &many) == ASCOT_INVALID);
    lengths[2] = 7;
    CHECK(ascot_reader_get_many(reader, keys, lengths, 4, one_of_many, &many) == ASCOT_INVALID);
    CHECK(ascot_reader_range(reader, NULL, 0, NULL, 0, in_order, &all) == ASCOT_OK && all.values == 2 * RECORDS);
    /* As bytes: those that begin with 1 or 2, of 256 for each. */
    CHECK(ascot_reader_range(reader, from, 8, upto, 8, in_order, &some) == ASCOT_OK);
    CHECK(some.values == 2 * 2 * ((RECORDS + 253) / 256));
    CHECK(ascot_reader_range(reader, upto, 8, from, 8, in_order, &some) == ASCOT_OK);
    CHECK(ascot_reader_warnings(reader, &count_of, &first) == ASCOT_OK && count_of == 0 && first[0] == 0);
    CHECK(ascot_reader_warnings(reader, NULL, NULL) == ASCOT_OK);
}

/* A filter is made another: all values are found, and it is said. */
static void damage_a_filter(const char *path)
{
    ascot_reader *reader = NULL;
    ascot_values *values = NULL;
    char name[4096];
    uint64_t key, found = 0, count_of = 0;
    const char *first = NULL;
    FILE *file;

    snprintf(name, sizeof name, "%s/part-00000000.index", path);
    file = fopen(name, "r+b");
    CHECK(file != NULL && fseek(file, 9, SEEK_SET) == 0 && fputc(0x55, file) == 0x55 && fclose(file) == 0);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_OK);
    for (key = 0; key < RECORDS; key += 7) {
        CHECK(ascot_get(reader, &key, 8, &values) == ASCOT_OK);
        found += ascot_values_count(values);
        ascot_values_free(values);
    }
    CHECK(found == 2 * ((RECORDS + 6) / 7));
    CHECK(ascot_reader_warnings(reader, &count_of, &first) == ASCOT_OK && count_of > 0);
    CHECK(strstr(first, "damaged") != NULL && strstr(first, "part-00000000.index") != NULL);
    ascot_reader_close(reader);
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
    read_many(reader);
    ascot_reader_close(reader);
}

int main(int argc, char **argv)
{
    ascot_writer *writer = NULL;
    ascot_reader *reader = NULL;
    const char *path = argc > 1 ? argv[1] : "run.dir";
    char beside[4096];

    CHECK(strcmp(ascot_version(), ASCOT_VERSION) == 0);
    CHECK(ascot_reader_open(path, NULL, &reader) == ASCOT_MISSING && reader == NULL);
    CHECK(ascot_writer_open(path, "scheme=lossy", NULL, &writer) == ASCOT_INVALID);
    CHECK(strstr(ascot_error_text(), "records, pointers, ranks") != NULL);
    CHECK(ascot_writer_open(path, "memory=100KiB", NULL, &writer) == ASCOT_MEMORY && writer == NULL);
    CHECK(ascot_writer_open(path, "memory=1", NULL, &writer) == ASCOT_MEMORY);
    CHECK(ascot_writer_open(path, "key=0", NULL, &writer) == ASCOT_INVALID);
    CHECK(ascot_writer_open(path, "key=8 key=9", NULL, &writer) == ASCOT_INVALID);
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
    CHECK(ascot_writer_open(path, "append=yes key=9", NULL, &writer) == ASCOT_INVALID);
    CHECK(ascot_reader_open(path, "memory=1", &reader) == ASCOT_MEMORY && reader == NULL);
    CHECK(ascot_reader_open(path, "memory=8MiB memory=9MiB", &reader) == ASCOT_INVALID);
    read_them(path);
    use_what_is_closed(path);
    snprintf(beside, sizeof beside, "%s.again", path);
    start_again(beside);
    snprintf(beside, sizeof beside, "%s.long", path);
    write_long_ones(beside);
    snprintf(beside, sizeof beside, "%s.much", path);
    allow_too_much(beside);
    damage_a_filter(path);
    printf("%d failures\n", failures);
    return failures != 0;
}
