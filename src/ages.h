/*
 * ages.h
 *		How old something was over time, where it gets older as time goes by.
 */
#ifndef INCLOAD_AGES_H
#define INCLOAD_AGES_H

#include "postgres.h"

/* Stretch: a time in which an age has grown from low to high, as fast as the clock; microseconds */
typedef struct Stretch
{
	int64		low;
	int64		high;
} Stretch;

/* how long all of them took */
extern int64 ages_time(const Stretch *stretches, int n);

/* of that, how long the age was above a limit */
extern int64 ages_above(const Stretch *stretches, int n, int64 limit);

/*
 * The smallest ages that were not exceeded for so many thousandths of the time, which grow, to the
 * microsecond: of a piecewise linear function, that is arithmetic. There has to be a stretch.
 */
extern void ages_percentiles(const Stretch *stretches, int n, const int *thousandths, int npercentiles, int64 *ages);

#endif							/* INCLOAD_AGES_H */
