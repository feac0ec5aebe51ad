module github.com/ringside-io/ringside/sqlitevfs

go 1.26
