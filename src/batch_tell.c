/*
 * batch_tell.c
 *		What a session is told of the batches of a run, at a humane pace.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "batch.h"
#include "compat.h"
#include "deletes.h"

/* so many batches are told one by one; after them, a line stands for all since the last one, every few seconds */
#define BATCHES_TOLD 10
#define TOLD_EVERY_MS 5000

/* "batch 3", or "batches 11 to 240" */
static char *
untold_batches(const Run *run)
{
	if (run->told_batches + 1 >= run->record->batches)
		return psprintf("batch %d", run->record->batches);
	return psprintf("batches %d to %d", run->told_batches + 1, run->record->batches);
}

void
run_report_batch(Run *run, bool is_last)
{
	const RunRecord *record = run->record;
	TimestampTz now = GetCurrentTimestamp();

	/* a run inside the caller's transaction tells by its result alone */
	if (!run->in_batches)
		return;
	if (record->rows_read == run->told_read && !run->is_full)
	{
		if (is_last && record->batches == 0)
			ereport(NOTICE, (errmsg("%s: nothing new", run->job->name)));
		return;
	}
	if (!is_last && record->batches > BATCHES_TOLD && !TimestampDifferenceExceeds(run->told_at, now, TOLD_EVERY_MS))
		return;
	ereport(NOTICE,
			(errmsg("%s: %s: " INT64_FORMAT " rows read, " INT64_FORMAT " inserted, "
					INT64_FORMAT " updated, " INT64_FORMAT " unchanged%s%s%s%s",
					run->job->name, untold_batches(run), record->rows_read - run->told_read,
					record->counts.inserted - run->told.inserted,
					record->counts.updated - run->told.updated,
					record->counts.unchanged - run->told.unchanged,
					deletes_from_target(run->job)
					? psprintf(", " INT64_FORMAT " deleted", record->counts.deleted - run->told.deleted) : "",
					record->counts.rejected == run->told.rejected ? ""
					: psprintf(", " INT64_FORMAT " rejected", record->counts.rejected - run->told.rejected),
					record->watermark_to ? ", to " : "",
					record->watermark_to ? record->watermark_to : "")));
	run->told = record->counts;
	run->told_read = record->rows_read;
	run->told_batches = record->batches;
	run->told_at = now;
}
