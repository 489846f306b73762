// Package clustered tests shares of inputs that come in groups, such as several images of one
// patient: inputs of one group may resemble each other, so that the binomial test of package
// binomial would count them as more evidence than they are.
package clustered
