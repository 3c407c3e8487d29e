/*
 * watermark.h
 *		Watermark values, and bounds between them.
 */
#ifndef INCLOAD_WATERMARK_H
#define INCLOAD_WATERMARK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "nodes/pg_list.h"

/* WatermarkKind: how a value relates to the source's clock */
typedef enum WatermarkKind
{
	WATERMARK_TIME,				/* comes from the source's clock: date, timestamp, timestamptz */
	WATERMARK_NUMBER,			/* taken while its table or sequence is locked: integers, numeric, oid */
	WATERMARK_ORDERED			/* any other type with a total order: uuid, text under C, bytea, … */
} WatermarkKind;

/* WatermarkType: a type that a watermark can have, with what it takes to handle its values */
typedef struct WatermarkType
{
	Oid			type;
	Oid			collation;
	WatermarkKind kind;
	int			per_second;		/* of a number that is a time: its units since 1970; else 0 */
	bool		by_value;
	int16		length;
	char	   *sql_name;		/* schema-qualified, for literals */
	int32		typmod;			/* of the column at the source; -1: none, or not known */
	bool		is_expression;	/* values are computed: from what, is not known */
	bool		is_in_view;		/* they may be, by a view */
	FmgrInfo	compare;
	FmgrInfo	input;
	Oid			input_param;
	FmgrInfo	output;
} WatermarkType;

typedef enum BoundSide
{
	BOUND_BEFORE,				/* just below every row that has the value */
	BOUND_AFTER					/* just above every row that has the value */
} BoundSide;

/*
 * Bound: a place between watermarks. No value needs a predecessor. With a
 * tie_key (char * for each key column), the place is inside the rows that
 * have the value: after the one with this key, in the source's key order.
 */
typedef struct Bound
{
	bool		is_set;			/* else: below everything, or above everything */
	Datum		value;
	BoundSide	side;
	List	   *tie_key;
} Bound;

/*
 * Prepares a type for use as watermark. 42804 with a hint where it has no
 * order that both sides agree on.
 */
extern WatermarkType *watermark_type(Oid type, Oid collation);

/* the same as a question: can a column of this type be a watermark? */
extern bool watermark_type_fits(Oid type, Oid collation);

/* 42804 where text of a source in this encoding has another order under "C" than here */
extern void watermark_require_encoding(const char *source_encoding);

/*
 * Takes values of the type as the option watermark_kind says (a WatermarkReading).
 * 22023 where the type cannot be read that way.
 */
extern void watermark_read_as(WatermarkType *type, int reading);

extern Datum watermark_parse(const WatermarkType *type, const char *text);
/* some value of the type, to try things out on */
extern Datum watermark_sample(const WatermarkType *type);

extern char *watermark_print(const WatermarkType *type, Datum value);
extern Datum watermark_copy(const WatermarkType *type, Datum value);
extern int	watermark_compare(const WatermarkType *type, Datum a, Datum b);

/* an SQL literal of the type, whose meaning no setting changes */
extern char *watermark_literal(const WatermarkType *type, Datum value);

/*
 * The value a lookback below another, rounded down: an interval below a time, a
 * number below a number. 22023 where the text is no such thing, or the type
 * has no way to go back.
 */
extern Datum watermark_subtract(const WatermarkType *type, Datum value, const char *lookback);

/*
 * The instant that a value is, where it needs no zone for that: a timestamptz or
 * a number since 1970. False for others, and for what is no finite instant.
 */
extern bool watermark_instant(const WatermarkType *type, Datum value, TimestampTz *at);

/* the number that an instant is for a type with per_second, rounded down */
extern Datum watermark_of_instant(const WatermarkType *type, TimestampTz at);

/* orders bounds; one that is not set comes first. Tie keys are not compared. */
extern int	bound_compare(const WatermarkType *type, const Bound *a, const Bound *b);

/* an instant from its text form; 0 for NULL */
extern TimestampTz instant_parse(const char *text);

extern const char *bound_side_name(BoundSide side);

#endif							/* INCLOAD_WATERMARK_H */
