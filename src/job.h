/*
 * job.h
 *		A job as it is stored, and what is known about it when it runs.
 */
#ifndef INCLOAD_JOB_H
#define INCLOAD_JOB_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"

#include "options.h"
#include "watermark.h"

typedef enum Strategy
{
	STRATEGY_APPEND,			/* rows are only inserted */
	STRATEGY_UPSERT,			/* rows are inserted, or updated by key */
	STRATEGY_FULL				/* every run reads everything; no watermark */
} Strategy;

/* Job: one row of incload.job, with its names resolved */
typedef struct Job
{
	int64		id;
	char	   *name;
	char	   *owner_name;
	Oid			owner;			/* InvalidOid where the role is gone */
	char	   *source_name;	/* schema-qualified and quoted */
	Oid			source;			/* InvalidOid where it is gone; likewise below */
	char	   *target_name;
	Oid			target;
	Strategy	strategy;
	char	   *watermark;		/* a column, or an expression in parentheses; NULL for full */
	List	   *key;			/* of char *: column names, NIL for none */
	Jsonb	   *options_json;
	JobOptions *options;
	char	   *search_path;
	char	   *schedule;		/* see agenda_schedule(); NULL: only when called */
	TransactionId version;		/* who wrote the row */
	bool		enabled;
	Oid			stored_target;	/* what the target was when the job last ran or was altered */
	char	   *stored_database;	/* where that OID holds */
	bool		reads_tombstones;	/* not stored: it stands for the reading of a job's tombstones, see tombstone.h */
	bool		is_new;			/* nothing of it is loaded yet: it is tried out with this source and target */
	char	   *source_columns; /* while it is tried out: what drift_remember() takes; likewise the next */
	char	   *absent_columns;
	bool		only_fills;		/* nothing is inserted for it now, and no column needs a default */
} Job;

extern const char *strategy_name(Strategy strategy);

/* 22023 with the possible words as hint */
extern Strategy strategy_parse(const char *name);

/*
 * Reads a job and checks that the current user may act for it: 42704 for an
 * unknown name, 42501 for one who is not a member of the owner's role.
 */
extern Job *job_load(const char *name);

/*
 * The same once the job's lock is held: what was read before may have been
 * changed meanwhile. A snapshot too old to see the change is an ERROR (40001).
 */
extern Job *job_reload(const Job *job);

/* do the two load the same columns and rows from the same source into the same target? */
extern bool job_same_definition(const Job *a, const Job *b);

/* an error where the owner is gone */
extern void job_require_owner(const Job *job);

/* has it come here with a dump, or a copied database, and not run successfully since? */
extern bool job_is_restored(const Job *job);

/* 25006 on a standby, where nothing can be changed; "function" is what was called */
extern void job_refuse_in_recovery(const char *function);

/* an error where the owner, the source or the target is gone */
extern void job_require_whole(const Job *job);

/*
 * Waits for whoever is about to change source or target, and looks again
 * whether they are there. mode is the lock on the target.
 */
extern void job_lock_relations(const Job *job, LOCKMODE mode);

/* what becomes of rows without a watermark: never NULL_WATERMARK_DEFAULT */
extern NullWatermark job_null_watermark(const Job *job);

/* how far below the checkpoint a run looks again; NULL for not at all */
extern const char *job_lookback(const Job *job, WatermarkKind kind);

/* how an empty target is filled by a run that commits in batches, or does not: never FIRST_LOAD_DEFAULT */
extern FirstLoad job_first_load(const Job *job, bool in_batches);

/* how a full refresh of the job is done: never FULL_REFRESH_DEFAULT */
extern FullRefreshMode job_full_refresh_mode(const Job *job);

#endif							/* INCLOAD_JOB_H */
