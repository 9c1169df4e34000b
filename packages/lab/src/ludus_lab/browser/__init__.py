"""Small web pages in a real browser, judged by the pages themselves."""
