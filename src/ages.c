/*
 * ages.c
 *		How old something was over time, where it gets older as time goes by.
 *
 * Each stretch spends one microsecond at each age from its low end to its high end. So
 * the time spent at or below an age grows, with the age, as fast as there are stretches
 * that have it: linearly between one end of a stretch and the next.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "ages.h"

/* ends are told apart by so many bits of their age at a time */
#define BITS 8
#define BUCKETS (1 << BITS)

/* fewer are sorted */
#define FEW 32

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

/* Place: how far one has come, from younger to older ages */
typedef struct Place
{
	int64		age;
	int64		time;			/* spent at this age or below */
	int64		number;			/* of stretches that have it */
} Place;

/* Histogram: what the ends of each bucket add, up to its end */
typedef struct Histogram
{
	int64		begin;			/* of the first bucket; all ends are less than 2 ** (shift + BITS) older */
	int			shift;			/* a bucket is 2 ** shift wide */
	int64		changes[BUCKETS];
	int64		offsets[BUCKETS];
} Histogram;

static void
begin_histogram(Histogram *histogram, int64 begin, int width)
{
	memset(histogram, 0, sizeof(Histogram));
	histogram->begin = begin;
	histogram->shift = Max(width - BITS, 0);
}

static inline int
bucket_of(const Histogram *histogram, int64 age)
{
	return (age - histogram->begin) >> histogram->shift;
}

static inline void
add_end(Histogram *histogram, int64 age, int change)
{
	int			bucket = bucket_of(histogram, age);

	histogram->changes[bucket] += change;
	histogram->offsets[bucket] += change * age;
}

/* goes to the beginning of the bucket in which the time comes to what is wanted */
static int
find_bucket(const Histogram *histogram, Place *place, int64 wanted)
{
	int			bucket;

	for (bucket = 0; bucket < BUCKETS - 1; bucket++)
	{
		int64		next = histogram->begin + ((int64) (bucket + 1) << histogram->shift);
		/* a stretch that begins in the bucket adds the time from there to the next one, and one that ends takes it away */
		int64		time = place->time + (next - place->age) * place->number +
			histogram->changes[bucket] * next - histogram->offsets[bucket];

		if (time >= wanted)
			break;
		place->time = time;
		place->number += histogram->changes[bucket];
		place->age = next;
	}
	return bucket;
}

/* of ends that lie within 2 ** width from the place on, keeps those of the bucket that matters, and goes there */
static int
narrow(End *ends, int n, Place *place, int width, int64 wanted)
{
	Histogram	histogram;
	int			bucket;
	int			kept = 0;

	begin_histogram(&histogram, place->age, width);
	for (int i = 0; i < n; i++)
		add_end(&histogram, ends[i].age, ends[i].change);
	bucket = find_bucket(&histogram, place, wanted);
	for (int i = 0; i < n; i++)
		if (bucket_of(&histogram, ends[i].age) == bucket)
			ends[kept++] = ends[i];
	return kept;
}

/* the age at which the time comes to what is wanted, from a place on; all of the ends lie within 2 ** width from there */
static int64
find_age(End *ends, int n, Place place, int width, int64 wanted)
{
	for (; n > FEW && width > 0; width -= BITS)
		n = narrow(ends, n, &place, width, wanted);
	qsort(ends, n, sizeof(End), compare_ends);
	for (int i = 0; i < n && place.time + (ends[i].age - place.age) * place.number < wanted; i++)
	{
		place.time += (ends[i].age - place.age) * place.number;
		place.age = ends[i].age;
		place.number += ends[i].change;
	}
	Assert(place.number > 0);
	return place.age + (wanted - place.time + place.number - 1) / place.number;
}

/* the ends in a bucket */
static int
ends_in_bucket(const Histogram *histogram, const Stretch *stretches, int n, int bucket, End *ends)
{
	int			found = 0;

	for (int i = 0; i < n; i++)
	{
		if (bucket_of(histogram, stretches[i].low) == bucket)
			ends[found++] = (End) {.age = stretches[i].low,.change = 1};
		if (bucket_of(histogram, stretches[i].high) == bucket)
			ends[found++] = (End) {.age = stretches[i].high,.change = -1};
	}
	return found;
}

/*
 * The ends are not sorted, as that would take most of the time: each percentile needs those of one
 * bucket alone, and of that one likewise, until few are left.
 */
void
ages_percentiles(const Stretch *stretches, int n, const int *thousandths, int npercentiles, int64 *ages)
{
	End		   *ends = palloc_extended(sizeof(End) * n * 2, MCXT_ALLOC_HUGE);
	int64		total = ages_time(stretches, n);
	int64		youngest = stretches[0].low;
	int64		oldest = stretches[0].high;
	int			width;
	Histogram	histogram;

	for (int i = 1; i < n; i++)
	{
		youngest = Min(youngest, stretches[i].low);
		oldest = Max(oldest, stretches[i].high);
	}
	width = pg_leftmost_one_pos64(oldest - youngest) + 1;
	begin_histogram(&histogram, youngest, width);
	for (int i = 0; i < n; i++)
	{
		add_end(&histogram, stretches[i].low, 1);
		add_end(&histogram, stretches[i].high, -1);
	}
	for (int i = 0; i < npercentiles; i++)
	{
		Place		place = {.age = youngest};
		int64		wanted = (total * thousandths[i] + 999) / 1000;
		int			bucket = find_bucket(&histogram, &place, wanted);

		ages[i] = find_age(ends, ends_in_bucket(&histogram, stretches, n, bucket, ends), place, width - BITS, wanted);
	}
	pfree(ends);
}
