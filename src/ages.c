/*
 * ages.c
 *		How old something was over time, where it gets older as time goes by.
 *
 * Each stretch spends one microsecond at each age from its low end to its high end. So
 * the time spent at or below an age grows, with the age, as fast as there are stretches
 * that have it: linearly between one end of a stretch and the next.
 */
#include "postgres.h"

#include "ages.h"

/* End: an age from which one stretch more, or one less, has the age */
typedef struct End
{
	int64		age;
	int			change;
} End;

int64
ages_time(const Stretch *stretches, int n)
{
	int64		time = 0;

	for (int i = 0; i < n; i++)
		time += stretches[i].high - stretches[i].low;
	return time;
}

int64
ages_above(const Stretch *stretches, int n, int64 limit)
{
	int64		time = 0;

	for (int i = 0; i < n; i++)
		if (stretches[i].high > limit)
			time += stretches[i].high - Max(stretches[i].low, limit);
	return time;
}

static int
compare_ends(const void *a, const void *b)
{
	int64		left = ((const End *) a)->age;
	int64		right = ((const End *) b)->age;

	return (left > right) - (left < right);
}

void
ages_percentiles(const Stretch *stretches, int n, const int *thousandths, int npercentiles, int64 *ages)
{
	End		   *ends = palloc(sizeof(End) * n * 2);
	int64		total = ages_time(stretches, n);
	int64		time = 0;
	int64		age;
	int			number = 0;
	int			which = 0;

	for (int i = 0; i < n; i++)
	{
		ends[2 * i] = (End) {.age = stretches[i].low,.change = 1};
		ends[2 * i + 1] = (End) {.age = stretches[i].high,.change = -1};
	}
	qsort(ends, n * 2, sizeof(End), compare_ends);
	age = ends[0].age;
	for (int i = 0; i < n * 2; i++)
	{
		int64		span = (ends[i].age - age) * number;

		for (; which < npercentiles; which++)
		{
			int64		wanted = (total * thousandths[which] + 999) / 1000;

			if (number == 0 || time + span < wanted)
				break;
			ages[which] = age + (wanted - time + number - 1) / number;
		}
		time += span;
		age = ends[i].age;
		number += ends[i].change;
	}
	Assert(which == npercentiles);
	pfree(ends);
}
