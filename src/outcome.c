/*
 * outcome.c
 *		The outcomes of runs, kept small beside the history, and condensed.
 *
 * Whoever writes the row of a run adds its outcome to the job's tally (tally.c), in the same
 * transaction: so there is an outcome for exactly the runs that are committed. When a tally has
 * some of them, they move to incload.outcome_store, where a row takes as many as fit a page.
 * What is there never changes: a run that is deleted from the history, or altered in it, adds
 * an outcome that takes the first one back.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"
#include "outcome.h"

/* a row with so many bytes of outcomes still fits a page */
#define MOST_BYTES 7680

bool
outcome_set_kind(Outcome *outcome, const char *kind, const char *status)
{
	bool		succeeded = strcmp(status, "succeeded") == 0;
	bool		is_full = strcmp(kind, "full") == 0;

	if (strcmp(kind, "backfill") == 0)
	{
		outcome->rows = OUTCOME_BACKFILL;
		return succeeded;
	}
	outcome->rows = (succeeded ? OUTCOME_SUCCEEDED : OUTCOME_FAILED) | (is_full ? OUTCOME_FULL : 0);
	return (is_full || strcmp(kind, "incremental") == 0) && (succeeded || strcmp(status, "failed") == 0);
}

void
outcome_set(Outcome *outcome, TimestampTz started_at, TimestampTz finished_at, int64 rows, int64 bytes, const char *sqlstate)
{
	/* four years and a half, either way */
	const int64 longest = (INT64CONST(1) << (63 - OUTCOME_CLASS_BITS)) - 1;
	int64		took = Max(Min(finished_at - started_at, longest), -longest);

	outcome->finished_at = finished_at;
	outcome->rows |= (uint64) rows << OUTCOME_FLAG_BITS;
	if (outcome_kind(outcome) == OUTCOME_BACKFILL)
		outcome->what = bytes;
	else
		outcome->what = (uint64) took << OUTCOME_CLASS_BITS |
			(sqlstate && sqlstate[0] ? (unsigned char) sqlstate[0] << 8 | (unsigned char) sqlstate[1] : 0);
}

char *
outcomes_as_text(const Outcome *outcomes, int n)
{
	int			length = n * sizeof(Outcome);
	char	   *text = palloc(2 + 2 * length + 1);

	text[0] = '\\';
	text[1] = 'x';
	hex_encode((const char *) outcomes, length, text + 2);
	text[2 + 2 * length] = '\0';
	return text;
}

/*
 * Nobody is waited for: where the newest row of the job is full, or somebody else is adding to
 * it, there is a new one.
 */
void
outcomes_condense(int64 job_id, const char *tally_id)
{
	const char *params[3] = {catalog_number(job_id), tally_id, catalog_number(MOST_BYTES)};

	catalog_query("WITH taken AS (UPDATE incload.tally_store t SET recent = '', recent_to = NULL"
				  "  FROM incload.tally_store b WHERE b.tally_id = $2::bigint AND t.tally_id = $2::bigint"
				  "  RETURNING b.recent, b.recent_to),"
				  " grown AS (UPDATE incload.outcome_store o SET outcomes = o.outcomes || k.recent,"
				  "  ended_by = greatest(o.ended_by, k.recent_to) FROM taken k"
				  "  WHERE o.chunk_id = (SELECT n.chunk_id FROM incload.outcome_store n WHERE n.job_id = $1::bigint"
				  "   ORDER BY n.ended_by DESC LIMIT 1 FOR UPDATE SKIP LOCKED)"
				  "  AND octet_length(o.outcomes) + octet_length(k.recent) <= $3::bigint RETURNING o.chunk_id)"
				  " INSERT INTO incload.outcome_store (job_id, ended_by, outcomes)"
				  " SELECT $1::bigint, k.recent_to, k.recent FROM taken k WHERE NOT EXISTS (SELECT FROM grown)", 3, params);
}

PG_FUNCTION_INFO_V1(incload_forget_outcomes);

/*
 * incload.forget_outcomes() → trigger
 *		After a TRUNCATE of incload.run_store, which nobody writes then.
 */
Datum
incload_forget_outcomes(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BY_TRUNCATE(((TriggerData *) fcinfo->context)->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function is a trigger of incload's own tables")));
	catalog_query("DELETE FROM incload.outcome_store", 0, NULL);
	catalog_query("UPDATE incload.tally_store SET recent = '', recent_to = NULL WHERE octet_length(recent) > 0", 0, NULL);
	return PointerGetDatum(NULL);
}
