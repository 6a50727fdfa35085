// SPDX-License-Identifier: Apache-2.0
/* What commands print, and how they end. */
#ifndef TSR_CLI_CONSOLE_H
#define TSR_CLI_CONSOLE_H
#include "cli/run_compile.h"

/* To the standard output; frees the text. */
void console_print(tsr_text *text);
/* The stages that --dump names, of the run's programs; by the job's first process. */
void console_print_dumps(const app *a, const setup *s, const tsr_compiled *compiled);
/* What a run is: mesh, ranks, batches, recipe, device. */
void console_print_start(const app *a, const setup *s, const prepared *p);
/* Parameters, memory and collectives of each rank. */
void console_print_plan(const setup *s, const prepared *p);
/* Whether a command's results are files, so that a failure of what it prints is a warning. */
bool console_is_secondary(const tsr_options *options);

/* Prints the diagnostics; returns the exit code. A command that has failed (`ok` is false) without
 * a diagnostic is an internal error of the function that calls this. */
int console_finish_in(app *a, bool ok, const char *function);
#define console_finish(a, ok) console_finish_in((a), (ok), __func__)
/* The same for a command that a signal stops: 128 and the signal's number. */
int console_finish_stoppable(app *a, bool ok);
/* A note where the folder of --out has no tokenizer: characters and bytes are none that goes with a
 * model. */
void console_note_tokenizer(app *a);
/* That --out is given; else an error. */
bool console_require_out(app *a);

#endif
