"""Events of jobs on their way from a worker, through the database, to those who follow."""
