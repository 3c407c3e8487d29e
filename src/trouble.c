/*
 * trouble.c
 *		What an error that others raise says to the user of a job.
 *
 * A value that does not fit, a filter with a typing error, a column that is
 * gone: the server and the source say what is wrong, seldom where it comes
 * from and never what to do about it in a job. That is added where the error
 * is reported, by a callback such as the ones that add the context, so that
 * nothing has to be caught and raised again.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "compat.h"
#include "trouble.h"

/* is it about what the user wrote, or about his data? */
static bool
concerns_user(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return true;
	}
}

static bool
blames_row(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_DATA_EXCEPTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION;
}

static void
add_what_lacks(void *arg)
{
	Trouble    *trouble = arg;
	MemoryContext context = AllocSetContextCreate(ErrorContext, "incload trouble", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ErrorData  *error = CopyErrorData();
	bool		is_error = error->elevel >= ERROR && concerns_user(error->sqlerrcode);
	bool		lost = ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_CONNECTION_EXCEPTION;
	int			error_state = error->sqlerrcode;
	bool		lacks_detail = error->detail == NULL;
	bool		lacks_hint = error->hint == NULL;

	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (!is_error)
		return;
	if (lacks_detail)
		errdetail_internal("%s", trouble->detail);
	if (lacks_hint && lost)
		errhint("See that the server runs, and compare its options and the user mapping's in \\des+ and \\deu+.");
	else if (lacks_hint && trouble->row_hint && error_state == ERRCODE_UNIQUE_VIOLATION)
		errhint("If another session has put that key in meanwhile, run the job again. Otherwise: %s", trouble->row_hint);
	else if (lacks_hint)
		errhint("%s", trouble->row_hint && blames_row(error_state) ? trouble->row_hint : trouble->hint);
}

void
trouble_begin(Trouble *trouble, const char *detail, const char *hint)
{
	trouble->detail = detail;
	trouble->hint = hint;
	trouble->row_hint = NULL;
	trouble->callback.callback = add_what_lacks;
	trouble->callback.arg = trouble;
	trouble->callback.previous = error_context_stack;
	error_context_stack = &trouble->callback;
}

void
trouble_begin_like(Trouble *trouble, const Trouble *texts)
{
	trouble_begin(trouble, texts->detail, texts->hint);
	trouble->row_hint = texts->row_hint;
}

void
trouble_end(Trouble *trouble)
{
	Assert(error_context_stack == &trouble->callback);
	error_context_stack = trouble->callback.previous;
}

bool
trouble_said(const char *detail)
{
	for (ErrorContextCallback *callback = error_context_stack; callback; callback = callback->previous)
		if (callback->callback == add_what_lacks && strcmp(((Trouble *) callback->arg)->detail, detail) == 0)
			return true;
	return false;
}
