/* motion.c: particles. Two beams of electrons and positrons cross in x; a small disturbance breaks their currents
 * into filaments, whose fields accelerate some particles.
 *
 * A step updates momenta by Boris's method (half the electric push, a rotation about the magnetic field, the other
 * half), then positions, and adds the current of the movement to the grid. It interpolates fields from, and adds
 * currents to, the four nearest points, with weights linear in the distance.
 */
#include "particles.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>

/* Momentum of a beam, and the spread about it. */
#define DRIFT 1.0
#define SPREAD 0.1

/* Position of a component of E or B in its cell; see grid.c. */
static const double E_AT[3][2] = {{0.5, 0}, {0, 0.5}, {0, 0}};
static const double B_AT[3][2] = {{0, 0.5}, {0.5, 0}, {0.5, 0.5}};

/* The four points around a position, and their weights. */
typedef struct {
    size_t point[4];
    double weight[4];
} corners;

static corners around(const grid *grid, double x, double y, const double at[2])
{
    corners found;
    double fx = x - grid->first - at[0], fy = y - at[1];
    int i = (int)floor(fx), j = (int)floor(fy), up;
    size_t left, right;

    fx -= i;
    fy -= j;
    j = (j + grid->ny) % grid->ny;
    up = (j + 1) % grid->ny;
    left = (size_t)(i + HALO) * (size_t)grid->ny;
    right = left + (size_t)grid->ny;
    found.point[0] = left + (size_t)j;
    found.point[1] = left + (size_t)up;
    found.point[2] = right + (size_t)j;
    found.point[3] = right + (size_t)up;
    found.weight[0] = (1 - fx) * (1 - fy);
    found.weight[1] = (1 - fx) * fy;
    found.weight[2] = fx * (1 - fy);
    found.weight[3] = fx * fy;
    return found;
}

static double gather(const double *field, const corners *from)
{
    return field[from->point[0]] * from->weight[0] + field[from->point[1]] * from->weight[1] +
           field[from->point[2]] * from->weight[2] + field[from->point[3]] * from->weight[3];
}

static double gamma_of(const double u[3])
{
    return sqrt(1 + u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
}

double kinetic(const double u[3])
{
    return gamma_of(u) - 1;
}

static void cross(const double a[3], const double b[3], double out[3])
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

/* J. P. Boris, Relativistic plasma simulation, 1970. */
static void boris(double u[3], const double e[3], const double b[3], double charge)
{
    double half = 0.5 * STEP * charge, t[3], s[3], turned[3], more[3], gamma, length;
    int k;

    for (k = 0; k < 3; k++)
        u[k] += half * e[k];
    gamma = gamma_of(u);
    for (k = 0; k < 3; k++)
        t[k] = half * b[k] / gamma;
    length = t[0] * t[0] + t[1] * t[1] + t[2] * t[2];
    for (k = 0; k < 3; k++)
        s[k] = 2 * t[k] / (1 + length);
    cross(u, t, turned);
    for (k = 0; k < 3; k++)
        turned[k] += u[k];
    cross(turned, s, more);
    for (k = 0; k < 3; k++)
        u[k] += more[k] + half * e[k];
}

static double wrapped(double place, double length)
{
    if (place < 0)
        place += length;
    return place >= length ? place - length : place;
}

static void move_one(particle *one, grid *grid, double weight)
{
    double charge = one->id % 2 ? 1 : -1, e[3], b[3], velocity[3], gamma, x, y;
    int part, k;

    for (part = 0; part < 3; part++) {
        corners near = around(grid, one->x, one->y, E_AT[part]);
        e[part] = gather(grid->e[part], &near);
        near = around(grid, one->x, one->y, B_AT[part]);
        b[part] = gather(grid->b[part], &near);
    }
    boris(one->u, e, b, charge);
    gamma = gamma_of(one->u);
    for (k = 0; k < 3; k++)
        velocity[k] = one->u[k] / gamma;
    /* Adds the current of the movement, halfway along it. */
    x = one->x + 0.5 * STEP / CELL * velocity[0];
    y = wrapped(one->y + 0.5 * STEP / CELL * velocity[1], grid->ny);
    for (part = 0; part < 3; part++) {
        corners near = around(grid, x, y, E_AT[part]);

        for (k = 0; k < 4; k++)
            grid->j[part][near.point[k]] += charge * weight * velocity[part] * near.weight[k];
    }
    one->x += STEP / CELL * velocity[0];
    one->y = wrapped(one->y + STEP / CELL * velocity[1], grid->ny);
}

void population_move(population *all, grid *grid)
{
    size_t i;

    for (i = 0; i < all->count; i++)
        move_one(&all->all[i], grid, all->weight);
}

/* ---------------------------------------------------------------- the start */

/* SplitMix64 (Steele, Lea, Flood, 2014) of the particle's number, so that it does not depend on the number of ranks. */
static double uniform(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return ((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(1 - uniform(state)));

    return radius * cos(6.283185307179586 * uniform(state));
}

static void add(population *all, const particle *one)
{
    if (all->count == all->room) {
        all->room = all->room ? 2 * all->room : 1024;
        all->all = realloc(all->all, all->room * sizeof *all->all);
        if (!all->all)
            fail("no memory for %zu particles", all->room);
    }
    all->all[all->count++] = *one;
}

/* Each cell starts with pairs of an electron and a positron at the same position, so that there is no charge. */
void population_make(population *all, const grid *grid, int pairs_per_cell, uint64_t seed)
{
    int i, j, pair, k;

    all->weight = 0.5 / pairs_per_cell;
    for (i = 0; i < grid->nx; i++)
        for (j = 0; j < grid->ny; j++)
            for (pair = 0; pair < pairs_per_cell; pair++) {
                uint64_t cell = (uint64_t)(grid->first + i) * (uint64_t)grid->ny + (uint64_t)j;
                uint64_t number = cell * (uint64_t)pairs_per_cell + (uint64_t)pair, state = seed ^ (number << 20);
                particle one;
                int sign;

                one.x = grid->first + i + uniform(&state);
                one.y = j + uniform(&state);
                for (sign = 0; sign < 2; sign++) {
                    one.id = 2 * number + (uint64_t)sign;
                    for (k = 0; k < 3; k++)
                        one.u[k] = SPREAD * normal(&state);
                    one.u[0] += (number + (uint64_t)sign) % 2 ? DRIFT : -DRIFT;
                    add(all, &one);
                }
            }
}

void population_free(population *all)
{
    free(all->all);
}

/* ---------------------------------------------------------------- to other ranks */

static void exchange(population *all, const population *leaving, int to, int from)
{
    uint64_t sent = leaving->count, coming = 0;
    particle *got;
    size_t i;

    MPI_Sendrecv(&sent, 1, MPI_UINT64_T, to, 5, &coming, 1, MPI_UINT64_T, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    got = allocate(coming + 1, sizeof *got);
    MPI_Sendrecv(leaving->all, (int)(sent * sizeof *got), MPI_BYTE, to, 6, got, (int)(coming * sizeof *got),
                 MPI_BYTE, from, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (i = 0; i < coming; i++)
        add(all, &got[i]);
    free(got);
}

/* Sends particles that have left this rank's cells to the neighbours; in one step they move no farther. */
void population_migrate(population *all, const grid *grid)
{
    population left = {0}, right = {0};
    size_t i, kept = 0;

    for (i = 0; i < all->count; i++) {
        particle one = all->all[i];
        double x = one.x - grid->first;

        one.x = wrapped(one.x, grid->all_nx);
        if (x < 0)
            add(&left, &one);
        else if (x >= grid->nx)
            add(&right, &one);
        else
            all->all[kept++] = one;
    }
    all->count = kept;
    all->migrated += left.count + right.count;
    exchange(all, &left, grid->left, grid->right);
    exchange(all, &right, grid->right, grid->left);
    population_free(&left);
    population_free(&right);
}

double population_energy(const population *all)
{
    double sum = 0;
    size_t i;

    for (i = 0; i < all->count; i++)
        sum += all->weight * kinetic(all->all[i].u);
    return sum;
}

record record_of(const particle *one)
{
    record made = {one->id, {one->x, one->y, one->u[0], one->u[1], one->u[2], kinetic(one->u)}};

    return made;
}
