/*
 * shape.h
 *		The shape of a load: which columns, from which expressions, into what.
 */
#ifndef INCLOAD_SHAPE_H
#define INCLOAD_SHAPE_H

#include "postgres.h"

#include "access/tupdesc.h"

#include "job.h"
#include "watermark.h"

/* LoadColumn: one column that is read at the source and written to the target */
typedef struct LoadColumn
{
	char	   *name;			/* of the target's column */
	char	   *expression;		/* SQL over the source's columns, safe to embed */
	bool		is_transform;
	AttrNumber	attnum;			/* in the target; 0 while there is no target */
	Oid			type;			/* of the target's column, as staged */
	int32		typmod;
	Oid			collation;
	bool		is_key;
	bool		is_settable;	/* may stand in UPDATE SET */
	Oid			source_type;	/* of the expression; InvalidOid where the type is not known here */
	int32		source_typmod;
	Oid			source_collation;
	bool		same_binary;	/* the source's binary form is the target's */
} LoadColumn;

/* WatermarkFeed: where a number comes from, and so when it is taken */
typedef enum WatermarkFeed
{
	FEED_OTHER,					/* a clock, a client: its transaction is open by then, and no more is known */
	FEED_SEQUENCE,				/* nextval, one by one: the sequence is locked from then on */
	FEED_CACHE					/* a sequence of which sessions take several ahead: any time before */
} WatermarkFeed;

/*
 * Shape: what one row of the source's query is. Its columns, in order, are
 * the loaded columns; where none of them is the watermark, the watermark; and
 * whether the row is deleted, where a column of the source tells.
 */
typedef struct Shape
{
	int			ncolumns;
	LoadColumn *columns;
	int			nkeys;
	int		   *key;			/* positions in columns, in the key's order */
	char	   *watermark_expression;	/* NULL: none */
	char	   *watermark_name; /* of the column that is added for it, unlike any loaded one */
	WatermarkType *watermark;
	int			watermark_position; /* in a row; -1: none */
	bool		watermark_not_null; /* the source's own catalog says so */
	bool		watermark_is_unique;	/* likewise: no two rows have the same */
	WatermarkFeed watermark_feed;	/* where its numbers come from */
	char	   *fallback_expression;	/* option watermark_fallback; NULL: none */
	WatermarkType *fallback;
	bool		fallback_is_unique;
	WatermarkFeed fallback_feed;
	char	   *source_numbers; /* which of the source's columns is which: another one may take a name */
	char	   *deleted_expression; /* "the row is deleted", to be read along; NULL: nothing says so */
	char	   *deleted_name;	/* of the column that is added for it, unlike any other */
	int			deleted_position;	/* in a row; -1: none */
	const char *zone;			/* the source's TimeZone, where its server evaluates the filter; else NULL */
	bool		of_tombstones;	/* each row says that its key is deleted, and has no more than that */
	bool		by_xmin;		/* no column is tracked, but the transaction that wrote a row */
	TupleDesc	desc;			/* of a staged row */
	bool		key_is_portable;	/* key values can be bounds in a query at the source */
	bool		key_is_unique;	/* the source cannot send a key twice in one read */
	bool		all_binary;		/* every column is same_binary */
} Shape;

struct Source;

/*
 * The columns that a job reads, before there is a target: names and
 * expressions from the source, columns, exclude and transforms, but for those that are
 * gone there. 42703 with the nearest name for one that the source has not.
 */
extern List *shape_source_columns(const struct Source *source, const Job *job);	/* of LoadColumn * */

/* can values of the first type go into a column of the second, by themselves? */
extern bool shape_types_meet(Oid from, Oid to);

/* asks the source for the types of the columns' expressions and fills them in */
extern void shape_describe(struct Source *source, const Job *job, List *columns,
						   Oid *watermark_type, int32 *watermark_typmod, Oid *watermark_collation);

/* sends ahead what shape_build() will ask first */
extern void shape_foresee(struct Source *source, const Job *job);

/*
 * Works out a job's shape against its target, or says why the job cannot work:
 * a column that one side lacks, a key that is not loaded, types that do not
 * meet, a watermark that is none. Needs a connected source.
 */
extern Shape *shape_build(struct Source *source, const Job *job);

/*
 * Is the job's watermark xmin, the transaction that wrote a row? It has no
 * bounds, and the mark of the last run in their stead (checkpoint.h).
 */
extern bool shape_tracks_xmin(const Job *job);

/* the job's watermark as SQL over the source's columns; NULL for none, and for xmin */
extern char *shape_watermark_expression(const Job *job);

/* describes the row of a shape by its columns */
extern void shape_build_desc(Shape *shape);

/* where a row has the column of that name; -1: nowhere */
extern int	shape_column_position(const Shape *shape, const char *name);

/* 42703 for a column that a side has not, with the nearest name for a hint; "role" is what it is named as */
extern void shape_unknown_column(const char *side, const char *relation, List *names,
								 const char *wanted, const char *role);

/* the same unless the source's columns ("names") have all that are wanted */
extern void shape_require_columns(const Job *job, List *names, List *wanted, const char *role);

/* is this column of the target loaded? */
extern bool shape_loads(const Shape *shape, AttrNumber attnum);

/* which column of the key has this name, wherever a partition has it; -1: none */
extern int	shape_key_position(const Shape *shape, const char *name);

/* names of the source relation's columns, as List of char * */
extern List *relation_column_names(Oid relation);

#endif							/* INCLOAD_SHAPE_H */
