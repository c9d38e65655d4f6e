/* Writes records to a file and reads them again through streams of elements.
 * Usage: streams FILE COUNT WRITE_OPTIONS READ_OPTIONS
 * Prints the requests made to write and to read, and the elements found.
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

int main(int argc, char **argv)
{
    ascot_stream_out out;
    ascot_stream_in in;
    struct record record = {0, "ascot"};
    uint64_t written, read;
    uint32_t count, number;

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
