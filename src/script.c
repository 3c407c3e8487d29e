/*
 * script.c
 *		What is asked over a connection, from one use of it to the next.
 *
 * A question is settled when two uses have asked it in the same words, with
 * the same arguments and at the same place; a third is likely to ask it, too.
 */
#include "postgres.h"

#include "compat.h"
#include "script.h"

Question *
question_copy(const Question *question)
{
	Question   *copy = palloc0(sizeof(Question));

	copy->wants_types = question->wants_types;
	copy->sql = pstrdup(question->sql);
	copy->narguments = question->narguments;
	for (int i = 0; i < question->narguments; i++)
		copy->arguments[i] = pstrdup(question->arguments[i]);
	return copy;
}

static void
free_question(Question *question)
{
	for (int i = 0; i < question->narguments; i++)
		pfree(question->arguments[i]);
	pfree(question->sql);
	pfree(question);
}

bool
question_same(const Question *a, const Question *b)
{
	if (a->wants_types != b->wants_types || a->narguments != b->narguments ||
		strcmp(a->sql, b->sql) != 0)
		return false;
	for (int i = 0; i < a->narguments; i++)
		if (strcmp(a->arguments[i], b->arguments[i]) != 0)
			return false;
	return true;
}

Script *
script_find(List **scripts, const char *name, MemoryContext context)
{
	Script	   *script;
	MemoryContext old;
	ListCell   *lc;

	foreach(lc, *scripts)
		if (strcmp(((Script *) lfirst(lc))->name, name) == 0)
			return lfirst(lc);
	old = MemoryContextSwitchTo(context);
	script = palloc0(sizeof(Script));
	script->name = pstrdup(name);
	script->context = context;
	*scripts = lappend(*scripts, script);
	MemoryContextSwitchTo(old);
	return script;
}

void
script_note(Script *script, int place, const Question *question)
{
	Question   *before = place < list_length(script->questions)
		? list_nth(script->questions, place) : NULL;
	MemoryContext old;

	if (before && question_same(before, question))
	{
		before->is_settled = true;
		return;
	}
	old = MemoryContextSwitchTo(script->context);
	if (before)
	{
		lfirst(list_nth_cell(script->questions, place)) = question_copy(question);
		free_question(before);
	}
	else
		script->questions = lappend(script->questions, question_copy(question));
	MemoryContextSwitchTo(old);
}

void
script_note_last(Script *script, const char *sql)
{
	if (script->last)
		pfree(script->last);
	script->last = sql ? MemoryContextStrdup(script->context, sql) : NULL;
}

void
script_shorten(Script *script, int length)
{
	while (list_length(script->questions) > length)
	{
		free_question(llast(script->questions));
		script->questions = list_delete_last(script->questions);
	}
}
