/* Which sanitizer watches this build. What computes the same many times over, to compare bits, does it fewer times then:
 * the plain builds compare, and what a sanitizer looks for shows at the first run of a path. */
#ifndef AFMOE_TESTS_SANITIZER_H
#define AFMOE_TESTS_SANITIZER_H

#ifdef __has_feature /* clang */
#define UNDER_ASAN __has_feature(address_sanitizer)
#define UNDER_TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#endif
#define UNDER_SANITIZER (UNDER_ASAN || UNDER_TSAN)

#endif
