// SPDX-License-Identifier: Apache-2.0
/* CRC-32C (Castagnoli; RFC 3720, appendix B.4), and its masked form, which TFRecord files have. */
#ifndef TSR_TENSORBOARD_CRC32C_H
#define TSR_TENSORBOARD_CRC32C_H
#include <stddef.h>
#include <stdint.h>

uint32_t tsr_crc32c(const void *bytes, size_t length);
/* Rotated right by 15 bits, plus a constant: a checksum of bytes that contain checksums. */
uint32_t tsr_crc32c_masked(const void *bytes, size_t length);

#endif
