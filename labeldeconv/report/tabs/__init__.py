"""The tabs of a report: each turns what a report is made from into one section of the page."""
