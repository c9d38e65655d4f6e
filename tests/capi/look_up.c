/* Tells what a directory holds: how many epochs and records, then of each key the epochs it has values in.
 * Usage: look_up DIRECTORY KEY...
 */
#include <ascot.h>

#include <stdio.h>
#include <stdlib.h>

static int count(void *context, uint64_t epoch, const void *key, size_t key_length, const void *value,
                 size_t value_length)
{
    (void)epoch, (void)key, (void)key_length, (void)value, (void)value_length;
    ++*(uint64_t *)context;
    return 0;
}

int main(int argc, char **argv)
{
    ascot_reader *reader;
    uint64_t epochs = 0, records = 0, epoch;
    int i;
    size_t number;

    if (argc < 2 || ascot_reader_open(argv[1], NULL, &reader) != ASCOT_OK ||
        ascot_epochs(reader, &epochs) != ASCOT_OK || ascot_iterate(reader, count, &records) != ASCOT_OK) {
        fprintf(stderr, "%s\n", ascot_error_text());
        return 1;
    }
    printf("epochs %llu records %llu\n", (unsigned long long)epochs, (unsigned long long)records);
    for (i = 2; i < argc; i++) {
        uint64_t key = strtoull(argv[i], NULL, 10);
        ascot_values *values;

        if (ascot_get(reader, &key, sizeof key, &values) != ASCOT_OK) {
            fprintf(stderr, "%s\n", ascot_error_text());
            return 1;
        }
        printf("%s:", argv[i]);
        for (number = 0; number < ascot_values_count(values); number++) {
            ascot_values_at(values, number, &epoch, NULL, NULL);
            printf(" %llu", (unsigned long long)epoch);
        }
        printf("\n");
        ascot_values_free(values);
    }
    ascot_reader_close(reader);
    return 0;
}
