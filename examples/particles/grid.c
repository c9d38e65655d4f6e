/* grid.c: electric and magnetic fields on the cells of one rank, by Yee's scheme in two dimensions.
 *
 * In cell (i, j) the components of the fields are at
 *
 *     Ex (i + 1/2, j)   Ey (i, j + 1/2)   Ez (i, j)      and the current where E is
 *     Bx (i, j + 1/2)   By (i + 1/2, j)   Bz (i + 1/2, j + 1/2)
 *
 * Columns are stored one after the other. The box is periodic: the cells of all ranks form a ring in x, and each
 * rank's cells form a ring in y.
 */
#include "particles.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static double *column(const grid *grid, double *field, int i)
{
    return field + (size_t)(i + HALO) * (size_t)grid->ny;
}

static size_t cells(const grid *grid)
{
    return (size_t)(grid->nx + 2 * HALO) * (size_t)grid->ny;
}

void grid_make(grid *grid, int rank, int size, int columns, int rows)
{
    int part;

    if (columns % size != 0 || columns / size < 2 * HALO)
        fail("%d columns cannot be divided among %d ranks: give a multiple, %d for each at least", columns, size,
             2 * HALO);
    grid->nx = columns / size;
    grid->ny = rows;
    grid->all_nx = columns;
    grid->first = rank * grid->nx;
    grid->left = (rank + size - 1) % size;
    grid->right = (rank + 1) % size;
    for (part = 0; part < 3; part++) {
        grid->e[part] = allocate(cells(grid), sizeof(double));
        grid->b[part] = allocate(cells(grid), sizeof(double));
        grid->j[part] = allocate(cells(grid), sizeof(double));
    }
}

void grid_free(grid *grid)
{
    int part;

    for (part = 0; part < 3; part++) {
        free(grid->e[part]);
        free(grid->b[part]);
        free(grid->j[part]);
    }
}

/* Fills the halo columns with those of the neighbours. */
static void fill_halo(const grid *grid, double *field)
{
    int count = HALO * grid->ny;

    MPI_Sendrecv(column(grid, field, 0), count, MPI_DOUBLE, grid->left, 1, column(grid, field, grid->nx), count,
                 MPI_DOUBLE, grid->right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(column(grid, field, grid->nx - HALO), count, MPI_DOUBLE, grid->right, 2,
                 column(grid, field, -HALO), count, MPI_DOUBLE, grid->left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Adds the values in the halo columns to those of the neighbours. */
static void give_halo(const grid *grid, double *field)
{
    int count = HALO * grid->ny, i;
    double *got = allocate((size_t)count, sizeof(double));
    double *own;

    MPI_Sendrecv(column(grid, field, -HALO), count, MPI_DOUBLE, grid->left, 3, got, count, MPI_DOUBLE, grid->right,
                 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    own = column(grid, field, grid->nx - HALO);
    for (i = 0; i < count; i++)
        own[i] += got[i];
    MPI_Sendrecv(column(grid, field, grid->nx), count, MPI_DOUBLE, grid->right, 4, got, count, MPI_DOUBLE,
                 grid->left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    own = column(grid, field, 0);
    for (i = 0; i < count; i++)
        own[i] += got[i];
    free(got);
}

/* dB/dt = - curl E, for half a step. */
void grid_half_magnetic(grid *grid)
{
    const double rate = 0.5 * STEP / CELL;
    int i, j;

    for (i = 0; i < grid->nx; i++) {
        const double *ex = column(grid, grid->e[0], i), *ey = column(grid, grid->e[1], i);
        const double *ez = column(grid, grid->e[2], i);
        const double *ey_right = column(grid, grid->e[1], i + 1), *ez_right = column(grid, grid->e[2], i + 1);
        double *bx = column(grid, grid->b[0], i), *by = column(grid, grid->b[1], i);
        double *bz = column(grid, grid->b[2], i);

        for (j = 0; j < grid->ny; j++) {
            int up = (j + 1) % grid->ny;

            bx[j] -= rate * (ez[up] - ez[j]);
            by[j] += rate * (ez_right[j] - ez[j]);
            bz[j] -= rate * (ey_right[j] - ey[j] - ex[up] + ex[j]);
        }
    }
    for (i = 0; i < 3; i++)
        fill_halo(grid, grid->b[i]);
}

/* dE/dt = curl B - J, for a step. The current is complete after the exchange with the neighbours. */
void grid_electric(grid *grid)
{
    const double rate = STEP / CELL;
    int i, j;

    for (i = 0; i < 3; i++)
        give_halo(grid, grid->j[i]);
    for (i = 0; i < grid->nx; i++) {
        const double *bx = column(grid, grid->b[0], i), *by = column(grid, grid->b[1], i);
        const double *bz = column(grid, grid->b[2], i);
        const double *by_left = column(grid, grid->b[1], i - 1), *bz_left = column(grid, grid->b[2], i - 1);
        double *ex = column(grid, grid->e[0], i), *ey = column(grid, grid->e[1], i);
        double *ez = column(grid, grid->e[2], i);

        for (j = 0; j < grid->ny; j++) {
            int down = (j + grid->ny - 1) % grid->ny;

            ex[j] += rate * (bz[j] - bz[down]) - STEP * column(grid, grid->j[0], i)[j];
            ey[j] -= rate * (bz[j] - bz_left[j]) + STEP * column(grid, grid->j[1], i)[j];
            ez[j] += rate * (by[j] - by_left[j] - bx[j] + bx[down]) - STEP * column(grid, grid->j[2], i)[j];
        }
    }
    for (i = 0; i < 3; i++)
        fill_halo(grid, grid->e[i]);
}

void grid_clear_current(grid *grid)
{
    int part;

    for (part = 0; part < 3; part++)
        memset(grid->j[part], 0, cells(grid) * sizeof(double));
}

/* Energy of the fields in this rank's own cells. */
double grid_energy(const grid *grid)
{
    double sum = 0;
    int part, i, j;

    for (part = 0; part < 3; part++)
        for (i = 0; i < grid->nx; i++) {
            const double *e = column(grid, grid->e[part], i), *b = column(grid, grid->b[part], i);

            for (j = 0; j < grid->ny; j++)
                sum += 0.5 * (e[j] * e[j] + b[j] * b[j]);
        }
    return sum;
}
