/* aotc_threads.h: threads, a lock and what threads wait for, by pthreads or by Win32.  It
 * stands before the headers of the system, as aotc_os.h does. */
#ifndef AOTC_THREADS_H
#define AOTC_THREADS_H

#include "aotc_os.h"

#if defined(_WIN32)

#if !defined(WIN32_LEAN_AND_MEAN)
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <process.h>

typedef SRWLOCK aotc_lock;
typedef CONDITION_VARIABLE aotc_condition;
typedef HANDLE aotc_thread;
typedef DWORD aotc_process;

#define AOTC_THREAD_MAIN(name, argument) static unsigned __stdcall name(void *argument)
typedef unsigned(__stdcall *aotc_thread_main)(void *);

/* Locks of Win32 need no room and cannot fail. */
static inline int aotc_lock_make(aotc_lock *lock)
{
    InitializeSRWLock(lock);
    return 1;
}

static inline int aotc_condition_make(aotc_condition *condition)
{
    InitializeConditionVariable(condition);
    return 1;
}

static inline void aotc_lock_end(aotc_lock *lock) { (void)lock; }
static inline void aotc_condition_end(aotc_condition *condition) { (void)condition; }
static inline void aotc_lock_take(aotc_lock *lock) { AcquireSRWLockExclusive(lock); }
static inline void aotc_lock_give(aotc_lock *lock) { ReleaseSRWLockExclusive(lock); }

static inline void aotc_condition_wait(aotc_condition *condition, aotc_lock *lock)
{
    SleepConditionVariableSRW(condition, lock, INFINITE, 0);
}

static inline void aotc_condition_wake(aotc_condition *condition)
{
    WakeConditionVariable(condition);
}

static inline void aotc_condition_wake_all(aotc_condition *condition)
{
    WakeAllConditionVariable(condition);
}

static inline int aotc_thread_start(aotc_thread *thread, aotc_thread_main fn, void *argument)
{
    *thread = (HANDLE)_beginthreadex(NULL, 0, fn, argument, 0, NULL);
    return *thread != NULL;
}

static inline void aotc_thread_join(aotc_thread thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}

static inline long aotc_processors(void)
{
    return (long)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

static inline aotc_process aotc_this_process(void)
{
    return GetCurrentProcessId();
}

#else

#include <pthread.h>
#include <unistd.h>

typedef pthread_mutex_t aotc_lock;
typedef pthread_cond_t aotc_condition;
typedef pthread_t aotc_thread;
typedef pid_t aotc_process;

#define AOTC_THREAD_MAIN(name, argument) static void *name(void *argument)
typedef void *(*aotc_thread_main)(void *);

static inline int aotc_lock_make(aotc_lock *lock)
{
    return pthread_mutex_init(lock, NULL) == 0;
}

static inline int aotc_condition_make(aotc_condition *condition)
{
    return pthread_cond_init(condition, NULL) == 0;
}

static inline void aotc_lock_end(aotc_lock *lock) { pthread_mutex_destroy(lock); }
static inline void aotc_condition_end(aotc_condition *c) { pthread_cond_destroy(c); }
static inline void aotc_lock_take(aotc_lock *lock) { pthread_mutex_lock(lock); }
static inline void aotc_lock_give(aotc_lock *lock) { pthread_mutex_unlock(lock); }

static inline void aotc_condition_wait(aotc_condition *condition, aotc_lock *lock)
{
    pthread_cond_wait(condition, lock);
}

static inline void aotc_condition_wake(aotc_condition *condition)
{
    pthread_cond_signal(condition);
}

static inline void aotc_condition_wake_all(aotc_condition *condition)
{
    pthread_cond_broadcast(condition);
}

static inline int aotc_thread_start(aotc_thread *thread, aotc_thread_main fn, void *argument)
{
    return pthread_create(thread, NULL, fn, argument) == 0;
}

static inline void aotc_thread_join(aotc_thread thread)
{
    pthread_join(thread, NULL);
}

static inline long aotc_processors(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN);
}

static inline aotc_process aotc_this_process(void)
{
    return getpid();
}

#endif
#endif
