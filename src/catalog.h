/*
 * catalog.h
 *		The only way into schema incload.
 *
 * Every function here works as the extension's owner, inside the caller's
 * transaction, and leaves the role as it found it. Whether the caller may do
 * it has been asked before.
 */
#ifndef INCLOAD_CATALOG_H
#define INCLOAD_CATALOG_H

#include "postgres.h"

#include "job.h"
#include "text_rows.h"

/* CheckpointRow: what incload.checkpoint says, as text; see watermark.h for its reading */
typedef struct CheckpointRow
{
	char	   *bound;			/* NULL: nothing is loaded for certain */
	char	   *bound_side;
	List	   *tie_key;		/* of char * */
	char	   *noted_bounds;	/* jsonb text */
	char	   *fallback_bound; /* likewise for the id of rows without a watermark */
	char	   *fallback_side;
	char	   *fallback_noted;
	char	   *guarantee;
	char	   *held_back_by;
	char	   *epoch;
	char	   *seen;
	List	   *seen_tie_key;	/* of char * */
	bool		seen_null;
	char	   *mark;
	char	   *definition_hash;
	char	   *loaded_to;
	char	   *bound_type;		/* of bound, seen and loaded_to */
	char	   *relations;
} CheckpointRow;

/* statement with text parameters, each cast where it is used; NULL is SQL null; see kept_plan.h */
extern TextRows *catalog_query(const char *sql, int nparams, const char *const *params);

/* a list of names (char *) as a parameter, and back */
extern char *catalog_names_to_array(List *names);
extern List *catalog_names_from_array(const char *array);

/* a number as a parameter of these */
extern char *catalog_number(int64 value);

/* the same, planned for this time; see kept_plan.h */
extern TextRows *catalog_query_once(const char *sql, int nparams, const char *const *params);

/* plans a statement that will be asked later; sooner or later, each has to be planned once a session */
extern void catalog_prepare(const char *sql, int nparams);

/* the same for a statement that returns one row with one composite value */
extern Datum catalog_query_row(const char *sql, int nparams, const char *const *params);

/* a row of the view incload.job by its number */
extern Datum catalog_job_row(int64 job_id);

/* the stored job of that name, source and target not yet looked up; NULL if there is none */
extern Job *catalog_find_job(const char *name);
extern Job *catalog_find_job_by_id(int64 job_id);

/* the role that owns a job, of what is stored of it; invalid where it is gone */
extern Oid catalog_job_owner(const char *name, Oid stored_owner, const char *stored_database);

/* names of all jobs, for a message that offers the nearest */
extern List *catalog_job_names(void);

/*
 * Locks a job's row against being dropped, and raises 40001 where it has been
 * changed after this transaction's snapshot. It may still be paused meanwhile.
 * Returns the row's version, invalid where it is gone.
 */
extern TransactionId catalog_lock_job(int64 job_id);

/* writes what "job" holds: a new row (sets id; false if the name is taken), or the row with its id */
extern bool catalog_insert_job(Job *job);
extern void catalog_update_job(const Job *job);
/* keeps the OIDs that source and target have now */
extern void catalog_note_relations(const Job *job);
extern void catalog_set_enabled(int64 job_id, bool enabled);
extern void catalog_delete_job(int64 job_id);

/* locks the job's checkpoint row until the end of the transaction and reads it */
extern CheckpointRow *catalog_read_checkpoint(int64 job_id, bool for_update);
extern void catalog_prepare_checkpoint(bool to_write);
extern void catalog_write_checkpoint(int64 job_id, const CheckpointRow *row);

/* the same for how far a job's tombstones are read, of which nothing is known at first; see tombstone.h */
extern CheckpointRow *catalog_read_tombstones(int64 job_id, bool for_update);
extern void catalog_write_tombstones(int64 job_id, const CheckpointRow *row);

/* all of them are read again: each is about a key that the source is asked for */
extern void catalog_forget_tombstones(int64 job_id);

/*
 * What a job was stopped for by a stop that lasts (history.h) and about which nobody has decided
 * since, as the error had it, with when that was; NULL: nothing.
 */
extern TextRows *catalog_lasting_stop(int64 job_id);

/*
 * Is it known that the job cannot load this column of its source (drift.c), or is nothing known
 * yet? With "by_name", columns are known by their names here, and one that is not is as good as omitted.
 */
extern bool catalog_omits_column(int64 job_id, const char *column, bool by_name);

/* takes the checkpoint back to nothing: everything is read again */
extern void catalog_reset_checkpoint(int64 job_id);

extern int64 catalog_next_run_id(void);

/* is a run of the job on record as running? Not planned, as each run asks it. */
extern bool catalog_has_running(int64 job_id);

/* likewise: has the job rows that were put aside? */
extern bool catalog_has_rejects(int64 job_id);

/* takes the columns that were asked for; false ends the scan */
typedef bool (*CatalogVisitor) (const Datum *values, const bool *nulls, void *arg);

/*
 * The rows of a job in a table whose index begins with job_id, in its order, as the active snapshot
 * has them. For reading many of them: nothing is planned, and nothing is copied.
 */
extern void catalog_scan(const char *table, const char *index, int64 job_id, const char *const *columns, int ncolumns,
						 CatalogVisitor visit, void *arg);

/* likewise: is anything counted of it? */
extern bool catalog_has_tally(int64 job_id);

/* likewise: has it a trouble that lasts (outbox.c)? */
extern bool catalog_has_alerts(int64 job_id);

/* are there channels, or were there once? */
extern bool catalog_has_channels(void);

/*
 * Has a run of the job succeeded in this very database? History goes where a database's files
 * go (pg_upgrade, backups, copies), and never with a dump. Windows of a backfill do not count.
 */
extern bool catalog_has_history(int64 job_id);

/* when the first run was that came to this mark of the source; 0: none has */
extern TimestampTz catalog_mark_since(int64 job_id, uint64 mark);

/* records what happened to a job; details is the text of a JSON object or NULL */
extern void catalog_event(const Job *job, const char *code, const char *message,
						  const char *details);

/* names and their texts, one after the other, as details of an event */
extern char *catalog_details(int n, const char *const *names_and_texts);

/* a ticket about a run */
extern void catalog_ticket(const Job *job, int64 run_id, const char *code, const char *message);

/* what somebody has to look at now */
extern void catalog_page(const Job *job, const char *code, const char *message);

/* a ticket for what goes on from run to run: recorded once for each "cause" */
extern void catalog_event_once(const Job *job, const char *code, const char *cause,
							   const char *message);

/* the same with another severity */
extern void catalog_note_once(const Job *job, const char *severity, const char *code, const char *cause,
							  const char *message);

#endif							/* INCLOAD_CATALOG_H */
