// SPDX-License-Identifier: Apache-2.0
/* What a file holds that is read as text. */
#ifndef TSR_DATA_TEXT_CHECK_H
#define TSR_DATA_TEXT_CHECK_H
#include "data/text_files.h"

/* An error at `place` when a file's begin or name shows that it is no text: compressed, an archive,
 * Parquet, Arrow, NumPy, HDF5, SQLite, PDF, a program, a picture, weights, UTF-16, tokens of llm.c,
 * Megatron or tt-train; a name that ends in .json, .jsonl or .ndjson, a first line that is a JSON
 * object, or all of it one object or array. */
bool tsr_content_check_kind(const tsr_text_file *file, tsr_location location, tsr_diags *diags);

/* An error at `place` when a file that should hold JSON, an object a line, begins as one of the
 * formats above, or holds one array. */
bool tsr_content_check_lines(const tsr_text_file *file, tsr_location location, tsr_diags *diags);

/* An error at `place` when a file that should be nothing but token numbers begins as one of these
 * formats with a number of 4 bytes or more, holds weights, or is text. */
bool tsr_content_check_tokens(const tsr_text_file *file, tsr_location location, tsr_diags *diags);

/* An error, located in the file, of bytes that are no UTF-8 and of NUL. */
bool tsr_content_check_bytes(const tsr_text_file *file, tsr_diags *diags);

#endif
