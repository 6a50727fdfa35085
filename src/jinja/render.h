// SPDX-License-Identifier: Apache-2.0
/* Jinja templates (https://jinja.palletsprojects.com, 3.1), as Hugging Face renders chat templates:
 * trim_blocks and lstrip_blocks, loop controls, `{% generation %}`, tojson, raise_exception,
 * strftime_now, and a sandbox in which no value that a template is given can be changed. Nothing of
 * a file or of the network can be reached. What is not supported is refused at its place, when a
 * template is read or when a conversation gets there; it never renders as something else. */
#ifndef TSR_JINJA_RENDER_H
#define TSR_JINJA_RENDER_H
#include "base/diag.h"
#include "jinja/value.h"

typedef struct tsr_jinja_template tsr_jinja_template;

/* Parses a template; all of it is in the arena. False: an error at its place in `file`, whose text
 * is remembered for it. */
bool tsr_jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_template **ret_template, tsr_diags *diags);

/* Bytes of the output that a {% generation %} block has written. */
typedef struct {
  int64_t begin, end;
} tsr_jinja_span;

typedef struct {
  int64_t steps_max;  /* of nodes that are evaluated; 0: 10,000,000 */
  int64_t output_max; /* bytes of all texts that are made; 0: 64 MiB */
  int64_t now;        /* strftime_now: seconds since 1970, UTC; 0: the clock's */
} tsr_jinja_limits;

typedef struct {
  tsr_text text; /* the caller frees it */
  tsr_jinja_span *spans;
  int spans_count;
} tsr_jinja_output;

/* Renders with the variables of a dict. False: an error at its place in the template, also of
 * raise_exception. Everything made is in the arena but for the text. */
bool tsr_jinja_render(
    tsr_arena *arena, const tsr_jinja_template *of, const jinja_dict *variables,
    const tsr_jinja_limits *limits, tsr_jinja_output *ret_output, tsr_diags *diags);

/* JSON as values: numbers without a point or an exponent are integers. False: an error at its
 * place. */
bool tsr_jinja_read_json(
    tsr_arena *arena, const char *file, const char *text, size_t length, jinja_value *ret_value,
    tsr_diags *diags);

#endif
