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

/* is there one window that is read once, with nothing of the owner's before it that may change what is in it? */
static bool
may_peek(const Run *run)
{
	return !run->is_full && !run->piece && !run->retry && !run->job->options->pre_sql;
}

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
	/* asked by another kind of run, or before the job has got a pre_sql, it is no answer */
	answer = routine->foretold(run->source, may_peek(run) && !run->window.is_empty ? question(run, &run->window) : NULL);
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

	if (routine->foretell == NULL || !may_peek(run) || run->record->rows_read > 0 || run->reading > QUICK)
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
