/* particles.h: declarations for all parts of the simulation.
 *
 *   grid.c       fields on the cells of one rank, and their exchange with the neighbours
 *   motion.c     particles: their start, motion, and transfer to other ranks
 *   output.c     dumps: a file per process, or one indexed directory
 *   particles.c  the loop
 *
 * Units: lengths in skin depths, times in plasma periods over 2 pi, so the speed of light, the plasma
 * frequency and charge over mass are 1. Positions are kept in cells.
 */
#ifndef PARTICLES_H
#define PARTICLES_H

#include <stddef.h>
#include <stdint.h>

/* Columns of cells on each side of a rank's own; a particle half a step outside reaches them. */
#define HALO 2
/* Side of a cell, and the time step: light crosses half a cell, below the limit of 0.7 in two dimensions. */
#define CELL 0.3
#define STEP (0.5 * CELL)

/* The cells of one rank: `nx` columns of `ny`, from column `first` of all `all_nx`. */
typedef struct {
    int nx, ny, first, all_nx;
    int left, right; /* ranks, in a ring */
    double *e[3], *b[3], *j[3];
} grid;

/* A particle. Its number never changes; even ones are electrons, odd ones positrons. */
typedef struct {
    uint64_t id;
    double x, y;
    double u[3]; /* momentum over mass */
} particle;

/* The record of a particle: its number is the key, 48 bytes of state are the value. */
typedef struct {
    uint64_t id;
    double state[6]; /* x, y, u, kinetic energy */
} record;

#define STATE_BYTES sizeof(((record *)0)->state)

typedef struct {
    particle *all;
    size_t count, room;
    double weight;     /* the density that one of them stands for */
    uint64_t migrated; /* to another rank, since the start */
} population;

typedef struct output output;

/* Ends the program at all ranks, with a text. */
void fail(const char *format, ...);
void *allocate(size_t count, size_t bytes);

void grid_make(grid *grid, int rank, int size, int columns, int rows);
void grid_free(grid *grid);
void grid_half_magnetic(grid *grid);
void grid_electric(grid *grid);
void grid_clear_current(grid *grid);
double grid_energy(const grid *grid);

void population_make(population *all, const grid *grid, int pairs_per_cell, uint64_t seed);
void population_free(population *all);
void population_move(population *all, grid *grid);
void population_migrate(population *all, const grid *grid);
double population_energy(const population *all);
double kinetic(const double u[3]);
record record_of(const particle *one);

/* kind: "files" or "index". */
output *output_open(const char *kind, const char *directory, const char *options);
void output_dump(output *to, const population *all);
void output_close(output *to);
double output_seconds(const output *to);

#endif
