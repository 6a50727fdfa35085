// SPDX-License-Identifier: Apache-2.0
/* An interpreter of Jinja templates (https://jinja.palletsprojects.com, 3.1), with the environment in
 * which transformers renders chat templates: trim_blocks, lstrip_blocks, loop controls,
 * `{% generation %}`, tojson, raise_exception, strftime_now, and immutable values. Templates cannot
 * access files or the network.
 *
 * A template renders to the text that Jinja renders, or it is refused with an error at the location
 * of what is not supported: when it is parsed, or when a rendering gets there. */
#ifndef TSR_JINJA_RENDER_H
#define TSR_JINJA_RENDER_H
#include "base/diag.h"
#include "base/json_scan.h"
#include "jinja/value.h"

typedef struct tsr_jinja_template tsr_jinja_template;

/* Parses a template, which lives in the arena. Its text is registered with `diags` under `file`, so
 * that errors quote it. */
bool tsr_jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_template **ret_template, tsr_diags *diags);

/* Whether the template has a {% generation %} block. */
bool tsr_jinja_has_generation(const tsr_jinja_template *of);

/* The bytes of the output that a {% generation %} block has written. */
typedef struct {
  int64_t begin, end;
} tsr_jinja_span;

typedef struct {
  int64_t steps_max; /* evaluated nodes; 0: 10,000,000 */
  int64_t bytes_max; /* of all texts that are made; 0: 256 MiB */
  int64_t now;       /* of strftime_now: seconds since 1970 (UTC); 0: the current local time */
} tsr_jinja_limits;
enum { TSR_JINJA_NO_TIME = -1 }; /* as `now`: strftime_now is an error */

/* The bytes of the output that one iteration of a loop over labelled dicts has written. */
typedef struct {
  int label; /* tsr_jinja_dict's */
  int64_t begin, end;
} tsr_jinja_written;

typedef struct {
  tsr_text text; /* freed by the caller */
  tsr_jinja_span *spans;
  int spans_count;
  tsr_jinja_written *written; /* without those that wrote nothing, inner loops before outer ones */
  int written_count;
} tsr_jinja_output;

/* Renders the template with the variables of a dict. All memory but that of the text is in the
 * arena. An exception that the template raises is an error, too. Several threads may render one
 * template. `limits` may be NULL. */
bool tsr_jinja_render(
    tsr_arena *arena, const tsr_jinja_template *of, const tsr_jinja_dict *variables,
    const tsr_jinja_limits *limits, tsr_jinja_output *ret_output, tsr_diags *diags);

/* Reads JSON as tsr_json_parse does, but with Python's numbers: one without a point and an exponent
 * is an integer. False: the fault, whose message is in the arena. Several threads may call it. */
bool tsr_jinja_read_json(
    tsr_arena *arena, const char *text, size_t length, tsr_jinja_value *ret_value,
    tsr_json_fault *ret_fault);
/* The same, of an object without its members whose keys are not among `keys` (a list that ends with
 * NULL), which may have integers of any size. */
bool tsr_jinja_read_members(
    tsr_arena *arena, const char *text, size_t length, const char *const *keys,
    tsr_jinja_value *ret_value, tsr_json_fault *ret_fault);

#endif
