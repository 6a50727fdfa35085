// SPDX-License-Identifier: Apache-2.0
/* Lines of JSON as samples for classification: {"text": …, "label": …}; other keys are ignored.
 *
 * A label is the name of a class or its number. The tokens of a text are those that transformers'
 * tokenizer gives: what its template puts before and behind a text is part of them. */
#ifndef TSR_DATA_LABELLED_TEXT_H
#define TSR_DATA_LABELLED_TEXT_H
#include "data/masked_documents.h"
#include "data/tokenizer.h"

enum { TSR_CLASSES_MAX = 65536 };

/* The classes, in the order of their numbers. */
typedef struct {
  const char *const *names; /* (count) or NULL: they are numbers alone */
  int count;                /* 0: it is not known */
} tsr_label_names;

/* How lines become tokens. Many threads may use one. */
typedef struct {
  tsr_tokenizer tokenizer;
  tsr_label_names labels;
  bool are_sorted; /* the names are those of the lines, not declared */
} tsr_label_format;

/* The encoder of such lines; `format` lasts as long. Errors, at line and column: a line that is no
 * object with a text and a label, a text without tokens or that the tokenizer cannot encode, a
 * label that is no class; numbers where names are sorted, which give them no order. */
tsr_line_encoder tsr_labelled_text_encoder(const tsr_label_format *format);

/* Adds the names that the labels of a file's lines have to `names`, sorted by bytes and each once.
 * Lines that are wrong are left to the encoder, and no more than TSR_CLASSES_MAX + 1 are added. */
enum { TSR_LABEL_NAMES_SHOWN = 8 };
typedef struct {
  tsr_arena *arena;
  int most; /* names that there may be; of those beyond, in the order of the lines: */
  const char **items;
  int count, capacity;
  const char *beyond[TSR_LABEL_NAMES_SHOWN]; /* the first ones */
  const char *beyond_file;                   /* where the first of them is, in `arena` */
  int beyond_line;
} tsr_label_collector;
void tsr_label_names_collect(tsr_label_collector *names, const tsr_text_file *file);
/* "'a', 'b'", in `arena`: TSR_LABEL_NAMES_SHOWN names at most, and … for others. */
const char *tsr_label_names_list(tsr_arena *arena, const tsr_label_names *names);

#endif
