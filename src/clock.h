/*
 * clock.h
 *		Instants of a source's clock as values of a watermark that is a time.
 */
#ifndef INCLOAD_CLOCK_H
#define INCLOAD_CLOCK_H

#include "postgres.h"

#include "source.h"
#include "watermark.h"

/*
 * The bound of an instant, rounded down: a row that is written at it or later
 * has no watermark below. The hour that comes twice when summer time ends must
 * not hide rows, so for a time without zone it is the least local time of this
 * instant and of the hours to come.
 */
extern Bound clock_bound(Source *source, const WatermarkType *type, TimestampTz at);

/*
 * The largest watermark that a clock which is "ahead" milliseconds fast can
 * give a row by now. Not set where the type is no time.
 */
extern Bound clock_limit(Source *source, const WatermarkType *type, TimestampTz now, int64 ahead);

/*
 * By how many microseconds a lookback from a place is too short for a time
 * without zone: where summer time began in it, local time has left an hour out.
 */
extern int64 clock_left_out(Source *source, const WatermarkType *type, const Bound *from,
							const char *lookback);

#endif							/* INCLOAD_CLOCK_H */
