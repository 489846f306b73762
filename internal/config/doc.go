// Package config gathers the daemon's settings from flags, environment and a file into one
// validated Config.
//
// A setting has one name everywhere: flag --max-streams, environment variable CKD_MAX_STREAMS, key
// max-streams in the file. A flag wins over the environment, the environment over the file, the
// file over the default.
package config
