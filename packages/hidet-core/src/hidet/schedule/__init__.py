"""From tasks to programs: fusion groups, rules, selection and the fallback nest."""
