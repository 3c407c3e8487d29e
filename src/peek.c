/*
 * peek.c
 *		Is there nothing new? Asked ahead, so that most empty runs need not read.
 *
 * A run that has read nothing leaves a question with the connection: whether
 * there is a row in what the next run will read. That run sends it together
 * with all that it asks in any case, and behind it. If the answer is no, the
 * transaction that reads is saved, with a round trip to the source. Its snapshot
 * is younger than what the horizon was made of, as that of a COPY would be, and
 * no row has been sent that could be misread.
 *
 * Where there is a row after all, the question was asked in vain. So only a
 * source is peeked at that answers quickly.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "peek.h"
#include "source.h"

/* microseconds that reading nothing may take, the round trip included */
#define QUICK 100000

static char *
question(const Run *run, const Window *window)
{
	return query_any(run->shape, run->source, run->job->options->filter, window);
}

bool
peek_has_none(Run *run)
{
	const SourceRoutine *routine = run->source->routine;
	TimestampTz began = GetCurrentTimestamp();
	TextRows   *answer;

	if (routine->foretold == NULL)
		return false;
	/* the job may have got a pre_sql since, which comes after the answer and before the rows */
	answer = routine->foretold(run->source, run->is_full || run->piece || run->retry || run->window.is_empty ||
							   run->job->options->pre_sql ? NULL : question(run, &run->window));
	if (answer == NULL || strcmp(answer->value[0][0], "f") != 0)
		return false;
	run->reading = GetCurrentTimestamp() - began;
	return true;
}

void
peek_foretell(Run *run)
{
	const SourceRoutine *routine = run->source->routine;
	Window		next;

	if (routine->foretell == NULL || run->is_full || run->piece || run->retry ||
		run->record->rows_read > 0 || run->reading > QUICK)
		return;
	/* it may change what is there to be read */
	if (run->job->options->pre_sql)
		return;
	/* the connection was given back, to read those */
	if (run->job->options->deletes == DELETES_TOMBSTONE)
		return;
	next = window_next(run->job, run->shape, run->checkpoint, run->horizon);
	/* the first load is not small */
	if (next.is_empty || !(next.low.is_set || next.mark != 0))
		return;
	routine->foretell(run->source, question(run, &next));
}
