"""Events to rows and DDL of whole transactions."""
