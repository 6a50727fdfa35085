/* The device of the tests whose programs run on one. It is there, under policy deterministic, when
 * main begins. */
#ifndef TSR_TESTS_CUDA_DEVICE_H
#define TSR_TESTS_CUDA_DEVICE_H
#include <stdbool.h>

/* Another one in its place. */
void test_device_open(bool fast);

#endif
