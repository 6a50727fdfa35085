// SPDX-License-Identifier: Apache-2.0
/* Two files of tensors (safetensors), of this program or of another one: exactly, or by how far
 * they are apart against a bound of rounding errors. */
#ifndef TSR_COMPARE_TENSOR_FILES_H
#define TSR_COMPARE_TENSOR_FILES_H
#include "base/diag.h"
#include "base/text.h"

typedef struct {
  int compared, equal; /* tensors that both have; of them those with the same bits */
  int beyond;          /* of the others: further apart than the bound */
  int unbounded;       /* of the others: neither file knows a bound */
  int only[2];         /* tensors that one alone has */
} tsr_file_comparison;

/* Tensors go together by name, or by Hugging Face's name that a file of `trace --save` has of one.
 * Appends the report: the tensors that differ, those furthest beyond their bound first, and the
 * verdict. Errors: a file that cannot be read; tensors of one name and other shapes. */
bool tsr_tensor_files_compare(
    tsr_arena *arena, const char *first, const char *second, tsr_file_comparison *ret_comparison,
    tsr_text *text, tsr_diags *diags);

#endif
