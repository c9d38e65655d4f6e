/* particles.c: beams of electrons and positrons in two dimensions, on any number of MPI ranks.
 *
 *     mpirun -n 8 particles --output index --scheme ranks --to run.dir --highest highest.txt
 *
 * It writes all particles every few steps, and at its end the numbers of those with the most energy.
 */
#include "particles.h"

#include <mpi.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *output, *scheme, *to, *highest, *options;
    int columns, rows, pairs, steps, every, top;
    uint64_t seed;
} settings;

static int rank, size;

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "particles: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void *allocate(size_t count, size_t bytes)
{
    void *made = calloc(count, bytes);

    if (!made)
        fail("no memory for %zu times %zu bytes", count, bytes);
    return made;
}

static const char USAGE[] =
    "particles --to DIRECTORY [--output files|index] [--scheme records|pointers|ranks]\n"
    "          [--options \"ranks_per_node=2 memory=32MiB\"]   more options of ascot_writer_open\n"
    "          [--columns 64] [--rows 64] [--pairs 16]        cells, and pairs in each\n"
    "          [--steps 200] [--every 20] [--seed 1]          a dump every so many steps\n"
    "          [--highest FILE] [--top 10]                    numbers of the most energetic particles\n";

static void parse(int count, char **words, settings *to)
{
    struct {
        const char *name;
        const char **text;
        int *number;
    } known[] = {
        {"--output", &to->output, NULL},   {"--scheme", &to->scheme, NULL}, {"--to", &to->to, NULL},
        {"--highest", &to->highest, NULL}, {"--options", &to->options, NULL},
        {"--columns", NULL, &to->columns}, {"--rows", NULL, &to->rows},     {"--pairs", NULL, &to->pairs},
        {"--steps", NULL, &to->steps},     {"--every", NULL, &to->every},   {"--top", NULL, &to->top},
    };
    size_t k;
    int i;

    for (i = 1; i < count; i += 2) {
        const char *value = i + 1 < count ? words[i + 1] : NULL;

        for (k = 0; k < sizeof known / sizeof *known && strcmp(words[i], known[k].name) != 0; k++)
            ;
        if (strcmp(words[i], "--seed") == 0 && value)
            to->seed = strtoull(value, NULL, 10);
        else if (k == sizeof known / sizeof *known || !value)
            fail("what is %s?\n%s", words[i], USAGE);
        else if (known[k].text)
            *known[k].text = value;
        else if ((*known[k].number = atoi(value)) <= 0)
            fail("%s %s: a number above 0 is wanted", words[i], value);
    }
    if (!to->to || (strcmp(to->output, "files") != 0 && strcmp(to->output, "index") != 0))
        fail("say where to write, and how\n%s", USAGE);
}

/* ---------------------------------------------------------------- the most energetic */

/* Orders by energy, descending, then by number. */
static int by_energy(const void *left, const void *right)
{
    const record *a = left, *b = right;

    if (a->state[5] != b->state[5])
        return a->state[5] > b->state[5] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Selects the first few of each rank, then the first few of all. */
static void write_highest(const settings *with, const population *all)
{
    size_t top = (size_t)with->top, i;
    record *own = allocate(all->count + top, sizeof *own), *of_all = NULL;
    FILE *file;

    for (i = 0; i < all->count; i++)
        own[i] = record_of(&all->all[i]);
    qsort(own, all->count, sizeof *own, by_energy);
    for (i = all->count; i < top; i++)
        own[i].state[5] = -1;
    if (rank == 0)
        of_all = allocate(top * (size_t)size, sizeof *of_all);
    MPI_Gather(own, (int)(top * sizeof *own), MPI_BYTE, of_all, (int)(top * sizeof *own), MPI_BYTE, 0,
               MPI_COMM_WORLD);
    free(own);
    if (rank != 0)
        return;
    qsort(of_all, top * (size_t)size, sizeof *of_all, by_energy);
    file = fopen(with->highest, "w");
    if (!file)
        fail("cannot write %s", with->highest);
    for (i = 0; i < top; i++)
        if (of_all[i].state[5] >= 0)
            fprintf(file, "%llu\n", (unsigned long long)of_all[i].id);
    if (fclose(file) != 0)
        fail("cannot write %s", with->highest);
    free(of_all);
}

/* ---------------------------------------------------------------- the loop */

static void tell(int step, const grid *grid, const population *all)
{
    double own[2] = {population_energy(all), grid_energy(grid)}, sums[2];
    static double first = 0;

    MPI_Reduce(own, sums, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (step == 0)
        first = sums[0] + sums[1];
    if (rank == 0)
        printf("step %4d  energy of particles %.4g, of fields %.4g; all has changed by %+.3f%%\n", step, sums[0],
               sums[1], 100 * ((sums[0] + sums[1]) / first - 1));
}

static void step(grid *grid, population *all)
{
    grid_half_magnetic(grid);
    grid_clear_current(grid);
    population_move(all, grid);
    grid_half_magnetic(grid);
    grid_electric(grid);
    population_migrate(all, grid);
}

static void simulate(const settings *with)
{
    grid grid = {0};
    population all = {0};
    char options[512];
    uint64_t own[2], sums[2];
    double began;
    output *to;
    int number;

    snprintf(options, sizeof options, "scheme=%s %s", with->scheme, with->options);
    grid_make(&grid, rank, size, with->columns, with->rows);
    population_make(&all, &grid, with->pairs, with->seed);
    to = output_open(with->output, with->to, options);
    began = MPI_Wtime();
    for (number = 0; number <= with->steps; number++) {
        if (number % with->every == 0) {
            tell(number, &grid, &all);
            output_dump(to, &all);
        }
        if (number < with->steps)
            step(&grid, &all);
    }
    output_close(to);
    if (with->highest)
        write_highest(with, &all);
    own[0] = all.count;
    own[1] = all.migrated;
    MPI_Reduce(own, sums, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%llu particles on %d ranks; %llu moves to another rank; %.2f s in all, %.2f s of it for %s\n",
               (unsigned long long)sums[0], size, (unsigned long long)sums[1], MPI_Wtime() - began,
               output_seconds(to), with->output);
    free(to);
    population_free(&all);
    grid_free(&grid);
}

int main(int argc, char **argv)
{
    settings with = {"files", "records", NULL, NULL, "", 64, 64, 16, 200, 20, 10, 1};
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    parse(argc, argv, &with);
    simulate(&with);
    MPI_Finalize();
    return 0;
}
