/* trajectories.c: follows a few particles through all dumps, one of two ways.
 *
 *     mpirun -n 8 trajectories files run.files highest.txt scan.csv     reads all dumps, in parallel
 *     mpirun -n 8 trajectories index run.dir   highest.txt query.csv    looks up each particle
 *
 * Both write the same table, in the same order, to the last digit:  particle,epoch,x,y,ux,uy,uz,energy
 */
#include "particles.h"

#include <ascot.h>
#include <mpi.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_RECORDS 18724 /* about 1 MiB */

/* A particle in a dump. */
typedef struct {
    uint64_t epoch;
    record found;
} point;

typedef struct {
    point *all;
    size_t count, room;
    uint64_t bytes; /* read */
} points;

static int rank, size;

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "trajectories: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void keep(points *to, uint64_t epoch, const record *found)
{
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 256;
        to->all = realloc(to->all, to->room * sizeof *to->all);
        if (!to->all)
            fail("no memory for %zu points", to->room);
    }
    to->all[to->count].epoch = epoch;
    to->all[to->count++].found = *found;
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static int by_particle(const void *left, const void *right)
{
    const point *a = left, *b = right;

    if (a->found.id != b->found.id)
        return a->found.id < b->found.id ? -1 : 1;
    return a->epoch < b->epoch ? -1 : a->epoch > b->epoch;
}

static uint64_t *read_numbers(const char *path, size_t *count)
{
    FILE *file = fopen(path, "r");
    uint64_t *numbers = NULL;
    unsigned long long number;
    size_t room = 0;

    if (!file)
        fail("cannot read %s", path);
    for (*count = 0; fscanf(file, "%llu", &number) == 1; numbers[(*count)++] = number)
        if (*count == room) {
            room = room ? 2 * room : 64;
            numbers = realloc(numbers, room * sizeof *numbers);
            if (!numbers)
                fail("no memory for %zu numbers", room);
        }
    fclose(file);
    if (*count == 0)
        fail("%s names no particle", path);
    qsort(numbers, *count, sizeof *numbers, by_number);
    return numbers;
}

/* ---------------------------------------------------------------- reading all files */

static void scan_file(FILE *file, uint64_t epoch, const uint64_t *numbers, size_t count, points *to)
{
    record *buffer = malloc(READ_RECORDS * sizeof *buffer);
    size_t got, i;

    if (!buffer)
        fail("no memory for a buffer");
    while ((got = fread(buffer, sizeof *buffer, READ_RECORDS, file)) > 0) {
        to->bytes += got * sizeof *buffer;
        for (i = 0; i < got; i++)
            if (bsearch(&buffer[i].id, numbers, count, sizeof *numbers, by_number))
                keep(to, epoch, &buffer[i]);
    }
    free(buffer);
}

/* Ranks take files in turn. */
static void scan(const char *directory, const uint64_t *numbers, size_t count, points *to)
{
    int epoch, writer, number = 0, writers = 1;
    char path[4200];
    FILE *file;

    for (epoch = 0; writers > 0; epoch++)
        for (writer = 0, writers = 0;; writer++, number++) {
            snprintf(path, sizeof path, "%s/epoch-%04d.rank-%04d", directory, epoch, writer);
            file = fopen(path, "rb");
            if (!file)
                break;
            writers++;
            if (number % size == rank)
                scan_file(file, (uint64_t)epoch, numbers, count, to);
            fclose(file);
        }
    if (epoch == 1)
        fail("there are no dumps in %s", directory);
}

/* ---------------------------------------------------------------- looking up keys */

static void query(const char *directory, const uint64_t *numbers, size_t count, points *to)
{
    ascot_reader *reader;
    size_t i, k, length;

    if (ascot_reader_open(directory, NULL, &reader) != ASCOT_OK)
        fail("%s", ascot_error_text());
    for (i = (size_t)rank; i < count; i += (size_t)size) {
        ascot_values *values;

        if (ascot_get(reader, &numbers[i], sizeof numbers[i], &values) != ASCOT_OK)
            fail("%s", ascot_error_text());
        for (k = 0; k < ascot_values_count(values); k++) {
            record found = {numbers[i], {0}};
            const void *state;
            uint64_t epoch;

            ascot_values_at(values, k, &epoch, &state, &length);
            if (length != STATE_BYTES)
                fail("a state of %zu bytes", length);
            memcpy(found.state, state, STATE_BYTES);
            keep(to, epoch, &found);
        }
        ascot_values_free(values);
    }
    ascot_reader_close(reader);
}

/* ---------------------------------------------------------------- collecting */

/* Collects all points at rank 0. */
static points gathered(const points *own)
{
    int bytes = (int)(own->count * sizeof(point)), i, sum = 0;
    int *counts = calloc((size_t)size, sizeof *counts), *places = calloc((size_t)size, sizeof *places);
    points all = {0};

    if (!counts || !places)
        fail("no memory for %d counts", size);
    MPI_Gather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (i = 0; i < size; i++) {
        places[i] = sum;
        sum += counts[i];
    }
    all.count = (size_t)sum / sizeof(point);
    all.all = malloc((size_t)sum + 1);
    if (!all.all)
        fail("no memory for %d bytes", sum);
    MPI_Gatherv(own->all, bytes, MPI_BYTE, all.all, counts, places, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Reduce(&own->bytes, &all.bytes, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    free(counts);
    free(places);
    return all;
}

static void write_table(const char *path, const points *all)
{
    FILE *file = fopen(path, "w");
    size_t i;
    int k;

    if (!file)
        fail("cannot write %s", path);
    fprintf(file, "particle,epoch,x,y,ux,uy,uz,energy\n");
    for (i = 0; i < all->count; i++) {
        const point *one = &all->all[i];

        fprintf(file, "%llu,%llu", (unsigned long long)one->found.id, (unsigned long long)one->epoch);
        for (k = 0; k < 6; k++)
            fprintf(file, ",%.17g", one->found.state[k]);
        fprintf(file, "\n");
    }
    if (fclose(file) != 0)
        fail("cannot write %s", path);
}

int main(int argc, char **argv)
{
    points own = {0}, all;
    uint64_t *numbers;
    size_t count;
    double began;
    int indexed;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5 || (strcmp(argv[1], "files") != 0 && strcmp(argv[1], "index") != 0))
        fail("trajectories files|index DIRECTORY NUMBERS TABLE");
    indexed = strcmp(argv[1], "index") == 0;
    numbers = read_numbers(argv[3], &count);
    MPI_Barrier(MPI_COMM_WORLD);
    began = MPI_Wtime();
    if (indexed)
        query(argv[2], numbers, count, &own);
    else
        scan(argv[2], numbers, count, &own);
    all = gathered(&own);
    began = MPI_Wtime() - began;
    if (rank == 0) {
        qsort(all.all, all.count, sizeof *all.all, by_particle);
        write_table(argv[4], &all);
        printf("%s: %zu points of %zu particles in %.4f s", indexed ? "by index" : "by full scan", all.count, count,
               began);
        if (!indexed)
            printf(", %.1f MB read", (double)all.bytes / 1e6);
        printf("\n");
    }
    free(own.all);
    free(all.all);
    free(numbers);
    MPI_Finalize();
    return 0;
}
