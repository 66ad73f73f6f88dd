"""`stockade serve`: runs over HTTP, for programs, pages and other machines."""
