"""Who may do what: principals, access control entries, and the authorizer."""
