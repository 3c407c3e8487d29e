/*
 * options.h
 *		The options of a job: their names, types, defaults and values.
 */
#ifndef INCLOAD_OPTIONS_H
#define INCLOAD_OPTIONS_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef enum NullWatermark
{
	NULL_WATERMARK_DEFAULT,		/* always for upsert, error for append */
	NULL_WATERMARK_SKIP,		/* such rows are never read */
	NULL_WATERMARK_ALWAYS,		/* such rows are read by every run */
	NULL_WATERMARK_ERROR		/* such a row fails the run */
} NullWatermark;

/* WatermarkReading: what a value of the watermark is to the horizon */
typedef enum WatermarkReading
{
	READING_BY_TYPE,
	READING_TIME,
	READING_ID,
	READING_EPOCH_S,			/* seconds since 1970, in a number */
	READING_EPOCH_MS			/* milliseconds since 1970 */
} WatermarkReading;

typedef enum ReaderChoice
{
	READER_AUTO,				/* copy for a postgres_fdw table, else relation */
	READER_COPY,
	READER_RELATION
} ReaderChoice;

typedef enum FullRefreshMode
{
	FULL_REFRESH_DEFAULT,		/* merge where there is a key, else truncate */
	FULL_REFRESH_MERGE,
	FULL_REFRESH_TRUNCATE,
	FULL_REFRESH_SWAP			/* into a new heap, see fill.h */
} FullRefreshMode;

typedef enum FirstLoad
{
	FIRST_LOAD_DEFAULT,			/* direct, but in batches whose size was asked for */
	FIRST_LOAD_DIRECT,			/* an empty target is filled at once, see fill.h */
	FIRST_LOAD_BATCHES			/* it is loaded like any other */
} FirstLoad;

/* Deletes: how rows that are deleted at the source go from the target */
typedef enum Deletes
{
	DELETES_DEFAULT,			/* they stay */
	DELETES_IGNORE,
	DELETES_SOFT,				/* a column of the source marks them: see shape_deleted.h */
	DELETES_TOMBSTONE,			/* a relation lists their keys: see tombstone.h */
	DELETES_PRUNE				/* the keys of both sides are compared: see prune.h */
} Deletes;

/* DeletedRows: what becomes of a row that is marked as deleted */
typedef enum DeletedRows
{
	DELETED_ROWS_DEFAULT,		/* it is deleted */
	DELETED_ROWS_DELETE,
	DELETED_ROWS_KEEP			/* it is loaded like any other, and its mark with it */
} DeletedRows;

/* OnConflict: what a repair does with a row that is not the source's, and that the source has not changed of late */
typedef enum OnConflict
{
	ON_CONFLICT_DEFAULT,		/* the source's version wins */
	ON_CONFLICT_SOURCE,
	ON_CONFLICT_TARGET,			/* the target's stays */
	ON_CONFLICT_REPORT			/* likewise, and an event tells of it */
} OnConflict;

typedef enum SchemaChange
{
	SCHEMA_CHANGE_IGNORE,		/* the columns that are known are loaded, and it is told; the default */
	SCHEMA_CHANGE_EVOLVE,		/* the foreign table and the target follow the source */
	SCHEMA_CHANGE_FAIL			/* nothing is loaded until somebody decides */
} SchemaChange;

/* Transform: the expression that stands for a column */
typedef struct Transform
{
	char	   *column;
	char	   *expression;
} Transform;

/* JobOptions: every option, set or default; NULL and NIL mean not set */
typedef struct JobOptions
{
	char	   *watermark_fallback;
	int			watermark_kind; /* WatermarkReading */
	int64		future_guard;	/* milliseconds */
	bool		only_newer;
	char	   *start_at;
	char	   *lookback;		/* an interval or a number, as the watermark is */
	int64		settle;			/* milliseconds */
	char	   *source_timezone;
	int			null_watermark;
	char	   *filter;
	List	   *columns;		/* of char * */
	List	   *exclude;		/* of char * */
	List	   *transforms;		/* of Transform * */
	int			deletes;
	char	   *deleted_column; /* or an expression in parentheses */
	int			deleted_rows;
	char	   *tombstone_source;
	char	   *tombstone_watermark;
	double		max_delete_fraction;
	int			on_conflict;
	char	   *reconcile_schedule;
	bool		reconcile_repair;
	int			reader;
	int			schema_change;
	int64		batch_rows;
	int			full_refresh_mode;
	int			first_load;
	char	   *pre_sql;
	char	   *post_sql;
	int64		statement_timeout;	/* milliseconds, 0 for none */
	int64		lock_timeout;	/* milliseconds, 0 for none */
	int64		max_rate;		/* rows a second, 0 for no limit */
	int64		parallel;		/* readers of a first load, and workers that load the windows of a backfill, at once */
	List	   *depends_on;		/* of char *: names of jobs */
	int64		retry_limit;
	int64		retry_delay;	/* milliseconds */
	int64		reject_limit;	/* rows, 0 for none */
	int64		pause_after;	/* failures in a row */
	int64		freshness_slo;	/* milliseconds, 0 for none */
	double		success_slo;	/* 0 for none */
} JobOptions;

/*
 * Reads the options of a job. An unknown name (22023, naming the nearest) or a
 * value of the wrong form is an ERROR.
 */
extern JobOptions *options_parse(Jsonb *json);

/* was this option given, be it with its default? */
extern bool options_has(Jsonb *json, const char *name);

/* options in "changes" replace those in "base"; null takes one away */
extern Jsonb *options_merge(Jsonb *base, Jsonb *changes);

#endif							/* INCLOAD_OPTIONS_H */
