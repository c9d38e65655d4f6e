/* plot.c: draws trajectories: plot TABLE COLUMNS ROWS >trajectories.svg
 *
 * Each particle is a line through the cells, darker with more energy, that ends in a dot. The line breaks where the
 * particle leaves on one side and returns on the other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH 720.0
#define MARGIN 40.0

typedef struct {
    unsigned long long particle, epoch;
    double x, y, u[3], energy;
} point;

static int read_point(FILE *file, point *to)
{
    return fscanf(file, "%llu,%llu,%lf,%lf,%lf,%lf,%lf,%lf", &to->particle, &to->epoch, &to->x, &to->y, &to->u[0],
                  &to->u[1], &to->u[2], &to->energy) == 8;
}

static double greatest_energy(FILE *file)
{
    double most = 0;
    point one;

    while (read_point(file, &one))
        if (one.energy > most)
            most = one.energy;
    return most;
}

/* From light to dark. */
static void shade(double share, char text[8])
{
    int red = (int)(225 - 170 * share), green = (int)(215 - 195 * share), blue = (int)(240 - 130 * share);

    snprintf(text, 8, "#%02x%02x%02x", red & 255, green & 255, blue & 255);
}

static void draw(FILE *file, double columns, double rows, double most)
{
    double scale = (WIDTH - 2 * MARGIN) / columns;
    point last = {0}, one;
    int begun = 0;
    char colour[8];

    while (read_point(file, &one)) {
        int same = begun && one.particle == last.particle;

        shade(one.energy / most, colour);
        if (same && fabs(one.x - last.x) < columns / 2 && fabs(one.y - last.y) < rows / 2)
            printf("<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s'/>\n", MARGIN + scale * last.x,
                   MARGIN + scale * last.y, MARGIN + scale * one.x, MARGIN + scale * one.y, colour);
        if (begun && !same)
            printf("<circle cx='%.1f' cy='%.1f' r='3.5'/>\n", MARGIN + scale * last.x, MARGIN + scale * last.y);
        last = one;
        begun = 1;
    }
    if (begun)
        printf("<circle cx='%.1f' cy='%.1f' r='3.5'/>\n", MARGIN + scale * last.x, MARGIN + scale * last.y);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 4 ? fopen(argv[1], "r") : NULL;
    double columns, rows, most, height;
    char line[256];

    if (!file) {
        fprintf(stderr, "plot TABLE COLUMNS ROWS >PICTURE.svg: the table must be there\n");
        return 1;
    }
    columns = atof(argv[2]);
    rows = atof(argv[3]);
    height = rows * (WIDTH - 2 * MARGIN) / columns;
    if (!fgets(line, sizeof line, file) || !(columns > 0) || !(rows > 0))
        return 1;
    most = greatest_energy(file);
    rewind(file);
    if (!fgets(line, sizeof line, file))
        return 1;
    printf("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' font-family='sans-serif' font-size='13'>\n",
           WIDTH, height + 2 * MARGIN);
    printf("<rect width='100%%' height='100%%' fill='white'/>\n");
    printf("<rect x='%.0f' y='%.0f' width='%.0f' height='%.0f' fill='none' stroke='#999'/>\n", MARGIN, MARGIN,
           WIDTH - 2 * MARGIN, height);
    printf("<text x='%.0f' y='25'>The particles with the most energy at the end, from the first dump on; up to "
           "%.2f m c²</text>\n<g stroke-width='1.6' stroke-linecap='round'>\n", MARGIN, most);
    draw(file, columns, rows, most);
    printf("</g>\n<text x='%.0f' y='%.0f'>x, %g cells</text>\n</svg>\n", MARGIN, height + 2 * MARGIN - 14, columns);
    fclose(file);
    return 0;
}
