"""What tests of hidet and of its plug-ins share."""
