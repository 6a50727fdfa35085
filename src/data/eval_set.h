// SPDX-License-Identifier: Apache-2.0
/* Evaluation sets: a file of JSONL with a question, a prompt or a text on each line.
 *
 * A line is of one of three kinds, by its keys; other keys are ignored, and so are empty lines:
 *
 *   choice      a context, its choices and the answer
 *   completion  a context and "completion"
 *   text        "text" alone
 *
 * The context is under "context", "question", "prompt", "ctx" or "goal". The choices are a list
 * "choices" or "endings", the lists "text" and "label" of an object "choices", or "sol1" and
 * "sol2". The answer is under "answer", "label" or "answerKey": the number of a choice from 0, or a
 * string, the first of these that it equals: the choice's label, its text, which no other may have,
 * its letter from A, its number. These are the lines of MMLU, HellaSwag, ARC and PIQA. */
#ifndef TSR_DATA_EVAL_SET_H
#define TSR_DATA_EVAL_SET_H
#include "data/text_files.h"
#include "jinja/render.h"

typedef enum { TSR_EVAL_CHOICE, TSR_EVAL_COMPLETION, TSR_EVAL_TEXT } tsr_eval_kind;
extern const char *const tsr_eval_kind_names[];

typedef struct {
  const char *context;  /* "" of a text */
  const char **choices; /* of a completion and of a text: itself alone */
  int choices_count;
  int answer;    /* 0 of a completion and of a text */
  size_t offset; /* of the line in the file */
  int line;      /* its number, from 1 */
} tsr_eval_item;

typedef struct {
  tsr_text_file file;
  tsr_eval_kind kind;
  tsr_eval_item *items;
  int count; /* at least 1 */
} tsr_eval_set;

typedef struct {
  /* Renders the context from a line's keys; NULL: it is the text under one of the keys above. */
  const tsr_jinja_template *context;
  /* The completion of a text is its last word, with the space before it (LAMBADA). */
  bool last_word;
} tsr_eval_format;

/* Reads a whole file; the text and all results live as long as the arena. Every mistake is an error
 * at its line and column: no JSON, a line of no kind or of another one than the first, no choice,
 * two choices of one label, an answer that is none of the choices, a file without a line. */
bool tsr_eval_set_read(
    tsr_arena *arena, const tsr_text_file *file, const tsr_eval_format *format,
    tsr_eval_set *ret_set, tsr_diags *diags);

#endif
