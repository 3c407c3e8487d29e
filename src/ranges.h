/*
 * ranges.h
 *		Where two relations differ: ranges of the key whose checksums are not
 *		the same on both sides.
 *
 * The first question gets one line a range from each side, whatever the size of
 * the tables. What differs is then cut into smaller ranges, and those alone are
 * asked about. A key that is one column of fixed length is cut by its order, so
 * that an index finds a range again; any other key is cut by its hash, at the
 * price of a look at all rows.
 *
 * Each question has a snapshot of its own on each side. That a range differs is
 * a reason to look at its rows, and no more.
 */
#ifndef INCLOAD_RANGES_H
#define INCLOAD_RANGES_H

#include "postgres.h"

#include "checksum.h"
#include "job.h"
#include "scope.h"

/* what is compared of the rows of a range, beside their number */
typedef enum Compared
{
	COMPARE_COUNTS,				/* nothing */
	COMPARE_KEYS,
	COMPARE_ROWS
} Compared;

/* Range: rows with low <= key < high, or those with some hash of the key */
typedef struct Range
{
	char	   *low;			/* as text; NULL: no end */
	char	   *high;
	int			bits;			/* how many bits of the hash, and which */
	uint32		hash;
	int64		source_rows;
	int64		target_rows;
	int64		pending_rows;	/* of the source's, those that are to be loaded yet (COMPARE_COUNTS) */
	struct Range *whole;		/* what it was cut from */
	bool		is_done;		/* it is cut no further */
} Range;

typedef struct Ranges
{
	const Job  *job;
	Source	   *source;
	const Shape *shape;
	const Scope *scope;
	Compared	compared;
	const char *pending;		/* for COMPARE_COUNTS, set by the caller: which rows of the source are to be loaded yet */
	Checksum   *checksum;
	const LoadColumn *ordered;	/* the key, where it is cut by its order; else NULL */
	int			nasked;			/* ranges that were compared */
	int			guc_level;
} Ranges;

/*
 * Needs a key, and the owner bracket. Between here and ranges_close(), and but for what
 * ranges_pause() and ranges_go_on() enclose, texts here mean what they mean at the source.
 */
extern Ranges *ranges_open(const Job *job, Source *source, const Shape *shape, const Scope *scope,
						   Compared compared);
extern void ranges_close(Ranges *ranges);
extern void ranges_pause(Ranges *ranges);
extern void ranges_go_on(Ranges *ranges);

/* the whole key space cut into ranges of about the same number of rows, uncompared (of Range *) */
extern List *ranges_cut(Ranges *ranges);

/* of these, those that differ */
extern List *ranges_differing(Ranges *ranges, List *candidates);

/* the same, cut until a range has few rows or cannot be cut any more */
extern List *ranges_narrowed(Ranges *ranges, List *candidates);

#endif							/* INCLOAD_RANGES_H */
