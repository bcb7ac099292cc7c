"""Running a DDL once, whatever interrupts it."""
