"""Stages: functions whose results are kept under keys derived from their arguments."""
