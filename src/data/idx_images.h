// SPDX-License-Identifier: Apache-2.0
/* MNIST's IDX files: one of images, one of labels (http://yann.lecun.com/exdb/mnist). */
#ifndef TSR_DATA_IDX_IMAGES_H
#define TSR_DATA_IDX_IMAGES_H
#include "data/table.h"

/* A table whose features are an image's pixels, row by row. Errors at `place`: a file that cannot
 * be read, another magic number, a length that does not follow from the header, as many labels as
 * there are not images. */
bool tsr_images_read(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_location location,
    tsr_table *ret_table, tsr_diags *diags);

#endif
